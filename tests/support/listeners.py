"""Which ports a process listens on."""
import os

LISTENS = "0A"  # The state in /proc/net/tcp.


def listening_ports(process):
    """The TCP ports over IPv4, in order."""
    folder = f"/proc/{process}/fd"
    links = []
    for name in os.listdir(folder):
        try:
            links.append(os.readlink(os.path.join(folder, name)))
        except OSError:
            continue  # Closed meanwhile.
    with open(f"/proc/{process}/net/tcp", encoding="utf-8") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    return sorted(int(words[1].rsplit(":", 1)[1], 16) for words in lines
                  if words[3] == LISTENS and f"socket:[{words[9]}]" in links)
