"""A process that is not of ours, and says to a coordinator what it likes. Messages are written in
Cap'n Proto's text form and encoded by its tool, by the schema of the protocol."""
import os
import re
import socket
import struct
import subprocess

SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "net", "schema")
SCHEMA = os.path.join(SCHEMAS, "control.capnp")
TENSOR_SCHEMA = os.path.join(SCHEMAS, "tensor.capnp")
MAGIC = 0x314e4b53  # "SKN1"
with open(SCHEMA, encoding="utf-8") as schema:
    VERSION = re.search(r"const protocolVersion :UInt\d+ = (\d+)", schema.read()).group(1)
HELLO = f"magic = 0x534b45494e303031, protocolVersion = {VERSION}"


def convert(kind, text, schema=SCHEMA):
    done = subprocess.run(["capnp", "--import-path=/usr/include", "encode", schema, kind],
                          input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read(kind, message):
    done = subprocess.run(["capnp", "--import-path=/usr/include", "decode", "--short", SCHEMA, kind],
                          input=message, capture_output=True, check=False)
    return done.stdout.decode()


def framed(message):
    return struct.pack("<II", MAGIC, len(message) // 8) + message


def fields(values):
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def hello(role, **more):
    """The first message on a connection; a peer says more of itself than others."""
    return framed(convert("Hello", f"({HELLO}, {fields({'role': role, **more})})"))


def tensor_header(**values):
    """What goes ahead of a tensor on a data connection."""
    return framed(convert("TensorHeader", f"({fields(values)})", TENSOR_SCHEMA))


class Stranger:
    """A connection of our own to `address`, which has said hello."""

    def __init__(self, address, role="worker"):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.sendall(hello(role))
        self.generation = self.term = self.worker = 0

    def say(self, body, generation=None):
        text = (f"(generation = {self.generation if generation is None else generation}, "
                f"term = {self.term}, sender = {self.worker}, body = ({body}))")
        self.socket.sendall(framed(convert("Envelope", text)))

    def hear(self):
        """The next message, as text; empty when the connection has ended."""
        try:
            head = self.take(8)
            return read("Envelope", self.take(struct.unpack("<II", head)[1] * 8)) if head else ""
        except OSError:
            return ""

    def take(self, count):
        taken = b""
        while len(taken) < count:
            piece = self.socket.recv(count - len(taken))
            if not piece:
                return b""
            taken += piece
        return taken

    def join(self, previous=0, generation=0, host="far"):
        """The first answer: who we are, or why not."""
        self.say(f'join = (hostName = "{host}", processId = 1, dataAddress = "127.0.0.1:1", '
                 f'device = "cpu x1", speed = 1, previousWorker = {previous}, '
                 f'generation = {generation})')
        answer = self.hear()
        if "joined" in answer:
            self.generation = number(answer, "generation")
            self.term = number(answer, "term")
            self.worker = number(answer.split("joined", 1)[1], "worker")
        return answer

    def hear_the_end(self):
        """True: the other side has closed the connection."""
        while self.hear():
            pass
        return True

    def close(self):
        self.socket.close()


def number(text, field):
    return int(text.split(f"{field} = ", 1)[1].split(",")[0].split(")")[0])
