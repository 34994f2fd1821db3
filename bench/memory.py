#!/usr/bin/env python3
"""Memory of every process of a run over minutes in which a peer or a link takes less than it is given.

    bench/memory.py build/release/skein [--seconds 300]

slow link   two stages on machines with 8 Mbit/s (network namespaces; as root), a snapshot ordered
            after every step, although one takes many steps' time on that link
strangers   two stages on this machine, and beside them viewers that ask and never read, silent
            connections, and garbage
deaf member a coordinator whose two workers are ours: one sends the other, which never reads, entries of
            the rendezvous as soon as it is told a plan, until that one is given up; again and again

All at the same time. State is that of the whole model: weights and AdamW's moments, float32. Target
fixed before: above what a process has after WARM_UP seconds no more than MULTIPLE times the state.
"""
import argparse
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from elastic_runs import ElasticRun, Place  # noqa: E402
from namespaces import Network  # noqa: E402
from stranger import Stranger, convert, framed, number  # noqa: E402

WARM_UP = 20
MULTIPLE = 3
RATE = "8mbit"
LAYERS, VOCABULARY, POSITIONS = 4, 256, 64  # tests/support/small_job.toml
EMBEDDING = 192
JOB = ["--parallelism.pipeline_parallel_degree", "2", "--training.steps", "1000000",
       "--model.n_embd", str(EMBEDDING), "--device.speed", "0.5", "--checkpoint.enable", "false"]
ENTRY_BYTES = 1 << 20  # The largest that the codec takes.
ENTRIES = 60
VIEWERS, QUESTIONS = 8, 2000


def state_bytes():
    """Weights and two moments of a GPT-2 with LAYERS blocks and tied embeddings."""
    block = 12 * EMBEDDING**2 + 13 * EMBEDDING
    return 3 * 4 * (LAYERS * block + (VOCABULARY + POSITIONS + 2) * EMBEDDING)


def resident_mb(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024
    except (OSError, AttributeError):
        return None


def watch(run, seconds):
    """Resident megabytes of each process, a sample a second."""
    processes = {"coordinator": run.coordinator.pid}
    for number, worker in enumerate(run.workers, 1):
        processes[f"worker {number}"] = worker.pid
    samples = {name: [] for name in processes}
    end = time.monotonic() + seconds
    while time.monotonic() < end and not run.has_ended():
        for name, pid in processes.items():
            resident = resident_mb(pid)
            if resident is not None:
                samples[name].append(resident)
        time.sleep(1)
    return samples


def slow_link(place, seconds):
    network = Network(3)
    try:
        for machine in (1, 2):
            network.shape(machine, RATE)
        run = ElasticRun(place, "slow-link", 2, *JOB, "--elastic.snapshot_interval", "1",
                         network=network)
        try:
            run.wait_for_step(1, seconds=60)
            samples = watch(run, seconds)
            return samples, f"{run.steps_done()} steps"
        finally:
            run.end()
    finally:
        network.remove()


def pester(run, ends):
    """Returns how many questions were asked whose answers nobody reads."""
    host, port = run.address().rsplit(":", 1)
    question = framed(convert("Envelope", "(body = (statusRequest = void))"))
    viewers, silent, asked = [], [], 0
    while not ends.wait(1):
        viewers = viewers or [Stranger(run.address(), role="viewer") for _ in range(VIEWERS)]
        try:
            for viewer in viewers:
                viewer.socket.settimeout(1)
                viewer.socket.sendall(question * QUESTIONS)
                asked += QUESTIONS
        except OSError:  # One was given up; they come back.
            for viewer in viewers:
                viewer.close()
            viewers = []
        for _ in range(20):
            silent.append(socket.create_connection((host, int(port)), timeout=10))
        while len(silent) > 300:
            silent.pop(0).close()
        with socket.create_connection((host, int(port)), timeout=10) as other:
            other.sendall(b"\xff" * 4096)
    return f"{asked} questions whose answers nobody reads"


def flood_deaf_members(run, ends):
    """Returns how much was sent to one that never reads, and how often it was given up for that."""
    sent = 0
    while not ends.wait(0.2):
        speaker, deaf = Stranger(run.address()), Stranger(run.address())
        try:
            deaf.join()
            heard = speaker.join(host="near")
            while heard and "assign" not in heard:
                if "quiesce" in heard:
                    for each in (speaker, deaf):
                        each.say("quiesced = ()", generation=number(heard, "generation"))
                heard = speaker.hear()
            speaker.generation = number(heard, "generation")
            body = f'rendezvous = (key = "g{speaker.generation}", value = 0x"{"00" * ENTRY_BYTES}")'
            entry = framed(convert("Envelope", f"(generation = {speaker.generation}, term = "
                                               f"{speaker.term}, sender = {speaker.worker}, "
                                               f"body = ({body}))"))
            for _ in range(ENTRIES):
                speaker.socket.sendall(entry)
                sent += len(entry)
        except (OSError, IndexError):
            pass  # They were given up, or the plan that is changed was not for them.
        speaker.close()
        deaf.close()
    lost = [each for each in run.events("worker.lost") if "does not read" in each["text"]]
    return f"{sent / 1e9:.1f} GB sent to one that does not read, given up {len(lost)} times" if lost else ""


def with_accomplice(run, seconds, accomplice):
    """`accomplice` begins after WARM_UP seconds, goes on until the end, and says what it did; nothing
    is not enough."""
    ends, said = threading.Event(), []
    thread = threading.Thread(
        target=lambda: ends.wait(WARM_UP) or said.append(accomplice(run, ends)))
    thread.start()
    try:
        samples = watch(run, seconds)
    finally:
        ends.set()
        thread.join()
    return samples, said[0] if said else ""


def strangers(place, seconds):
    run = ElasticRun(place, "strangers", 2, *JOB, apart=True)
    try:
        run.wait_for_step(1, seconds=60)
        samples, said = with_accomplice(run, seconds, pester)
        return samples, said and f"{run.steps_done()} steps, {said}"
    finally:
        run.end()


def deaf_member(place, seconds):
    run = ElasticRun(place, "deaf-member", 0, *JOB, apart=True, waits_for=2)
    try:
        return with_accomplice(run, seconds, flood_deaf_members)
    finally:
        run.end()


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("skein")
    arguments.add_argument("--seconds", type=int, default=300)
    options = arguments.parse_args()
    scenarios = {"strangers": strangers, "deaf member": deaf_member}
    if os.geteuid() == 0 and Network.is_possible():
        scenarios["slow link"] = slow_link
    else:
        print("slow link: left out, as it takes root and network namespaces", file=sys.stderr)
    found = {}
    state_mb = state_bytes() / 2**20
    with tempfile.TemporaryDirectory() as folder:
        place = Place(options.skein, folder)
        threads = []
        for name, scenario in scenarios.items():
            def run(name=name, scenario=scenario):
                found[name] = scenario(place, options.seconds)
            threads.append(threading.Thread(target=run))
            threads[-1].start()
        for thread in threads:
            thread.join()
    print(f"state {state_mb:.1f} MB; target: at most {MULTIPLE} times that above the first "
          f"{WARM_UP} s, over {options.seconds} s")
    holds = len(found) == len(scenarios)
    for name, (samples, said) in found.items():
        holds = holds and bool(said)
        print(f"{name}: {said or 'nothing came to pass'}")
        for process, each in samples.items():
            first = statistics.median(each[:WARM_UP])
            growth = max(each) - first
            holds = holds and growth <= MULTIPLE * state_mb
            print(f"  {process:12s} {first:7.1f} MB at first, {max(each):7.1f} at most, "
                  f"{each[-1]:7.1f} at the end: {growth / state_mb:+.2f} times the state")
    print("holds" if holds else "does NOT hold")
    sys.exit(0 if holds else 1)


main()
