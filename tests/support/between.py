"""A middleman between workers and their coordinator."""
import socket
import threading
import time


class Between:
    """Stands between workers and their coordinator, until it takes its place. `closes`: then it
    closes what it has accepted; else it keeps it and says nothing."""

    def __init__(self, address, closes=True):
        host, port = address.rsplit(":", 1)
        self.upstream = (host, int(port))
        self.closes = closes
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.is_alone = False
        self.accepted = []  # When, since it is alone.
        self.kept = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.server.accept()
            if not self.is_alone:
                other = socket.create_connection(self.upstream)
                self.kept += [client, other]
                for pair in ((client, other), (other, client)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()
                continue
            self.accepted.append(time.monotonic())
            client.close() if self.closes else self.kept.append(client)

    def take_over(self):
        self.is_alone = True
        self.reset()
        return time.monotonic()

    def reset(self):
        """Breaks all connections, which both ends hear of."""
        for each in self.kept:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.kept = []


def pass_on(source, target):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    except OSError:
        pass
