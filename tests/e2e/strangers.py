#!/usr/bin/env python3
"""Whoever connects to a run and is no part of its plan can say what it likes: training goes on."""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest  # noqa: E402
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402
from stranger import Stranger  # noqa: E402

SILENT = 900
GARBAGE = 3000
JOB = ["--parallelism.pipeline_parallel_degree", "2", "--checkpoint.interval", "20",
       "--training.steps", "100000", "--device.speed", "0.25"]
FILES = "files = [(name = \"{}\", bytes = 8, crc32c = 0)]"


def silent_sockets(address):
    """Connections that say nothing."""
    host, port = address.rsplit(":", 1)
    return [socket.create_connection((host, int(port)), timeout=10) for _ in range(SILENT)]


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
    run = ElasticRun(program, "strangers", 2, *JOB, apart=True)
    silent = silent_sockets(run.address())
    run.wait_for_step(1, seconds=30)
    program.expect(f"{SILENT} silent sockets lock no worker out", not run.has_ended())
    for each in silent:
        each.close()
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
