"""Machines of a small network, each a network namespace of Linux behind one bridge. Only for root."""
import itertools
import os
import subprocess

NETWORKS = itertools.count()  # This process may have several at a time.
BURST = "32kbit"


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Network:
    """`count` machines; number 0 has the address that `address(0)` says. Workers 1, 2, ... are on
    the others, so many on each."""

    def __init__(self, count, workers_on_each=1):
        self.count = count
        self.workers_on_each = workers_on_each
        self.prefix = f"sk{os.getpid() % 100000}n{next(NETWORKS)}"
        self.bridge = self.prefix + "b"
        ip("netns", "add", self.bridge)
        try:
            self.build()
        except subprocess.CalledProcessError:
            self.remove()
            raise

    @staticmethod
    def is_possible():
        """Whether we may make namespaces and shape links here."""
        try:
            network = Network(1)
        except (OSError, subprocess.CalledProcessError):
            return False
        network.remove()
        return True

    def build(self):
        inside = ("-n", self.bridge)
        ip(*inside, "link", "add", "br0", "type", "bridge")
        ip(*inside, "link", "set", "br0", "up")
        for machine in range(self.count):
            name = self.name(machine)
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{machine}",
               "netns", self.bridge)
            ip(*inside, "link", "set", f"port{machine}", "master", "br0", "up")
            ip("-n", name, "addr", "add", self.address(machine) + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def name(self, machine):
        return f"{self.prefix}m{machine}"

    def machine_of(self, worker):
        return 1 + (worker - 1) // self.workers_on_each

    def address(self, machine):
        return f"10.79.13.{machine + 1}"

    def command(self, machine):
        """Words before a command that is to run on the machine; its process keeps its number."""
        return ["ip", "netns", "exec", self.name(machine)]

    def unplug(self, machine):
        """What it sends and what is sent to it is lost, without a word."""
        ip("-n", self.bridge, "link", "set", f"port{machine}", "down")

    def plug_in(self, machine):
        ip("-n", self.bridge, "link", "set", f"port{machine}", "up")

    def cut(self, one, other):
        """What one sends to the other is lost; the other way is open."""
        ip("-n", self.name(one), "neigh", "replace", self.address(other), "lladdr",
           "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0")

    def mend(self, one, other):
        ip("-n", self.name(one), "neigh", "del", self.address(other), "dev", "eth0")

    def shape(self, machine, rate, burst=BURST):
        """Bits a second in both directions, as tc says them ("10mbit"); a link of a gigabit needs a
        burst of a megabyte ("1mb")."""
        for name, device in ((self.name(machine), "eth0"), (self.bridge, f"port{machine}")):
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf",
                            "rate", rate, "burst", burst, "latency", "200ms"], check=True)

    def shape_inside(self, machine, rate):
        """All that workers of the machine send one another."""
        subprocess.run(["tc", "-n", self.name(machine), "qdisc", "replace", "dev", "lo", "root", "tbf",
                        "rate", rate, "burst", "1mb", "latency", "200ms"], check=True)

    def remove(self):
        for machine in range(self.count):
            ip("netns", "del", self.name(machine), check=False)
        ip("netns", "del", self.bridge, check=False)
