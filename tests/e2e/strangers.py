#!/usr/bin/env python3
"""Whoever connects to a run and is no part of its plan can say what it likes: training goes on."""
import os
import re
import resource
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits  # noqa: E402
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from listeners import listening_ports  # noqa: E402
from running import Program  # noqa: E402
from stranger import Stranger, hello, tensor_header  # noqa: E402

SILENT = 1100  # Twice what a coordinator keeps of those that have said nothing.
JOIN_SECONDS = 2 * float(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
GARBAGE = 3000
JOB = ["--parallelism.pipeline_parallel_degree", "2", "--checkpoint.interval", "20",
       "--training.steps", "100000", "--device.speed", "0.25"]
FILES = "files = [(name = \"{}\", bytes = 8, crc32c = 0)]"


class SilentSockets:
    """Connections that say nothing; each that is closed is made anew."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.renewed = 0
        self.is_over = False
        self.sockets = [self.connect() for _ in range(SILENT)]
        self.thread = threading.Thread(target=self.renew, daemon=True)
        self.thread.start()

    def connect(self):
        return socket.create_connection(self.address, timeout=10)

    @staticmethod
    def has_ended(each):
        try:
            return each.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def renew(self):
        while not self.is_over:
            for i, each in enumerate(self.sockets):
                if self.has_ended(each):
                    each.close()
                    self.sockets[i] = self.connect()
                    self.renewed += 1
            time.sleep(0.05)

    def close(self):
        self.is_over = True
        self.thread.join()
        for each in self.sockets:
            each.close()


def silence(program, run):
    """Workers come while silent connections take all places there are."""
    silent = SilentSockets(run.address())
    start = time.monotonic()
    for _ in range(2):
        run.join()
    joined = wait_until(lambda: len(run.events("worker.joined")) == 2, JOIN_SECONDS)
    program.expect(f"{SILENT} silent sockets lock no worker out", joined,
                   f"{time.monotonic() - start:.2f} s, {silent.renewed} made anew")
    run.wait_for_step(1, seconds=30)
    silent.close()


def forged_tensors(program):
    """Whoever knows all of a plan but its secret connects to the data ports of both workers, as their
    neighbour: it announces tensors of the next steps that it does not send, or sends some."""
    words = ["--parallelism.pipeline_parallel_degree", "2", "--training.steps", "120",
             "--device.speed", "0.25"]
    run = ElasticRun(program, "forged", 2, *words, apart=True)
    run.wait_for_step(5)
    ports = [listening_ports(run.pid(worker)) for worker in (1, 2)]
    stranger = Stranger(run.address())
    answer = stranger.join()
    said = {"run": re.search(r'run = ("[^"]*"), configDigest', answer).group(1),
            "generation": stranger.generation, "term": stranger.term, "secret": 7}
    rows, floats = 4, 32 * 64  # As tests/support/small_job.toml has it.
    not_numbers = struct.pack("<f", float("nan")) * rows * floats
    # By the worker whose stage receives: who sends to it, and what.
    hellos = [hello("peer", sender=2, **said), hello("peer", sender=1, **said)]
    kinds = ["gradient", "activation"]
    connections = []
    while not run.has_ended() and run.steps_done() < 100:
        before, connections = connections, []
        step = run.steps_done()
        for receiver, ahead in ((receiver, ahead) for ahead in range(5) for receiver in (0, 1)):
            header = tensor_header(generation=stranger.generation, sender=1 - receiver,
                                   receiver=receiver, kind=kinds[receiver], step=step + ahead,
                                   microbatch=0, rowBegin=0, rowCount=rows,
                                   payloadBytes=len(not_numbers))
            for payload in (b"", not_numbers[:1000], not_numbers, not_numbers):
                for port in ports[receiver]:
                    connections.append(announce(port, hellos[receiver] + header + payload))
        for each in before:
            each.close()
    code = run.finish()
    for each in connections:
        each.close()
    program.expect("forged tensors: training goes on to its end", code == 0,
                   f"{code}: {run.errors()[-300:]}")
    program.expect("forged tensors: they are turned away",
                   "does not know the plan's secret" in run.errors(), run.errors()[-300:])
    program.expect("forged tensors: nobody is lost",
                   not [each for each in run.events("worker.lost")
                        if each["worker"] != str(stranger.worker)])
    _, undisturbed = program.train("undisturbed", "--workers", "2", *words)
    program.expect("forged tensors: the weights have the bits of an undisturbed run",
                   same_bits(read_model(newest(run.folder())), read_model(newest(undisturbed))))


def announce(port, data):
    """A connection that has said so much, or been closed before."""
    each = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        each.sendall(data)
    except OSError:
        pass
    return each


def lie(run, program):
    """Joins, and says what only others may say."""
    stranger = Stranger(run.address())
    program.expect("an idle stranger is let in", "joined" in stranger.join())
    nan = "ready = (replica = {}, step = {}, lossSum = nan, lossTokens = 1, normSquared = nan)"
    forged = FILES.format("model-00001-of-00002.safetensors")
    for _ in range(3):
        step = run.steps_done()
        for ahead in range(4):
            for replica in (0, 1):
                stranger.say(nan.format(replica, step + ahead))
                stranger.say(f"reduced = (replica = {replica}, step = {step + ahead}, "
                             "normSquared = nan)")
        due = (step // 20 + 1) * 20
        for stage in (0, 1):
            stranger.say(f"shardSaved = (stage = {stage}, step = {due}, {forged})")
            stranger.say(f"shardSaved = (stage = {stage}, step = {due}, error = \"it lies\")")
            stranger.say(f"snapshotKept = (stage = {stage}, step = {step})")
        stranger.say("validated = (replica = 1, step = 0, lossSum = nan, lossTokens = 1)")
        stranger.say("peerFailure = (reason = \"it lies\", peer = 1)")
        run.wait_for_step(step + 5)
    return stranger


def joins_that_lie(run, program):
    wild = Stranger(run.address())
    answer = wild.join(generation=2 ** 47)
    program.expect("a plan that nobody can have seen is refused by name",
                   "none of this run" in answer, answer[:200])
    forged = Stranger(run.address())
    forged.join(previous=2 ** 24)
    program.expect("a number that was never given is not taken", forged.worker < 100,
                   f"w{forged.worker}")
    for name in (b"\xff\xfe", b"a\x1b[2Jb", b"a\nb"):
        text = "".join(f"\\x{each:02x}" for each in name)
        unclean = Stranger(run.address())
        program.expect(f"the host name {name!r} closes the link",
                       "joined" not in unclean.join(host=text))
        unclean.close()
    for each in (wild, forged):
        each.close()


def garbage(run):
    host, port = run.address().rsplit(":", 1)
    for _ in range(GARBAGE):
        with socket.create_connection((host, int(port)), timeout=10) as other:
            other.sendall(b"GET / HTTP/1.1\r\n\r\n")


def main():
    program = Program()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    forged_tensors(program)
    run = ElasticRun(program, "strangers", 0, *JOB, apart=True, waits_for=2)
    silence(program, run)
    stranger = lie(run, program)
    joins_that_lie(run, program)
    before = run.steps_done()
    garbage(run)
    run.wait_for_step(before + 5)
    events = os.path.getsize(os.path.join(run.folder(), "events.jsonl"))
    program.expect(f"{GARBAGE} garbage connections are few lines", events < 64_000,
                   f"{events} bytes")
    program.expect("... and the others are counted",
                   wait_until(lambda: [each for each in run.events("peer.rejected")
                                       if int(each.get("count", 0)) > GARBAGE // 2], 8))
    stranger.say("failed = (reason = \"no such file\", badInput = true)")
    program.expect("a stranger that blames the input is evicted", stranger.hear_the_end())
    before = run.steps_done()
    run.wait_for_step(before + 5)
    program.expect("no change of plan came of all that", not run.events("plan.quiesced"),
                   str([each["text"] for each in run.events("plan.quiesced")]))
    dropped = run.steps()[-1].get("dropped_messages", {})
    program.expect("what it said is counted by reason", dropped.get("not_allowed", 0) >= 30,
                   str(dropped))
    checkpoint = newest(run.folder())
    run.coordinator.terminate()
    program.expect("the run ends as it was told to", run.finish() == 75)
    verified = program.run("verify", checkpoint or run.folder())
    program.expect("its checkpoints are whole", verified.returncode == 0, verified.stderr.strip())
    program.finish()


main()
