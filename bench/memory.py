#!/usr/bin/env python3
"""Memory of every process of a run over minutes in which a peer or a link takes less than it is given.

    bench/memory.py build/release/skein [--seconds 300]

slow link   two stages on machines with 8 Mbit/s (network namespaces; as root), a snapshot ordered
            after every step, although one takes many steps' time on that link
deaf peer   two stages on this machine, and a stranger that sends entries of the rendezvous to one that
            never reads, opens silent connections, and sends garbage

Both at the same time. State is that of the whole model: weights and AdamW's moments, float32. Target
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
from stranger import Stranger, convert, framed  # noqa: E402

WARM_UP = 20
MULTIPLE = 3
RATE = "8mbit"
LAYERS, VOCABULARY, POSITIONS = 4, 256, 64  # tests/support/small_job.toml
EMBEDDING = 192
JOB = ["--parallelism.pipeline_parallel_degree", "2", "--training.steps", "1000000",
       "--model.n_embd", str(EMBEDDING), "--device.speed", "0.5", "--checkpoint.enable", "false"]
ENTRY_BYTES = 1 << 20  # The largest that the codec takes.
ENTRIES = 60


def state_bytes():
    """Of a GPT-2 with LAYERS blocks and tied embeddings: weights and two moments."""
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
        run.wait_for_step(1, seconds=60)
        samples = watch(run, seconds)
        said = f"{run.steps_done()} steps"
        run.end()
        return samples, said
    finally:
        network.remove()


def pester(run, ends):
    """What a deaf peer's accomplice does until `ends`; returns how much it has sent."""
    deaf = Stranger(run.address())
    deaf.join()
    speaker = Stranger(run.address())
    speaker.join()
    body = (f'rendezvous = (key = "g{speaker.generation}", value = 0x"{"00" * ENTRY_BYTES}", '
            f"receivers = [{deaf.worker}])")
    entry = framed(convert("Envelope", f"(generation = {speaker.generation}, term = {speaker.term}, "
                                       f"sender = {speaker.worker}, body = ({body}))"))
    host, port = run.address().rsplit(":", 1)
    silent, sent = [], 0
    while not ends.wait(1):
        try:
            for _ in range(ENTRIES):
                speaker.socket.sendall(entry)
                sent += len(entry)
        except OSError:  # It was thrown out, and comes back.
            speaker = Stranger(run.address())
            speaker.join()
        for _ in range(20):
            silent.append(socket.create_connection((host, int(port)), timeout=10))
        while len(silent) > 300:
            silent.pop(0).close()
        with socket.create_connection((host, int(port)), timeout=10) as other:
            other.sendall(b"\xff" * 4096)
    return sent


def deaf_peer(place, seconds):
    run = ElasticRun(place, "deaf-peer", 2, *JOB, apart=True)
    run.wait_for_step(1, seconds=60)
    ends, sent = threading.Event(), []
    accomplice = threading.Thread(target=lambda: sent.append(pester(run, ends)))
    accomplice.start()
    samples = watch(run, seconds)
    ends.set()
    accomplice.join()
    said = f"{run.steps_done()} steps, {sum(sent) / 1e9:.1f} GB sent to the deaf peer"
    run.end()
    return samples, said


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("skein")
    arguments.add_argument("--seconds", type=int, default=300)
    options = arguments.parse_args()
    scenarios = {"deaf peer": deaf_peer}
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
        print(f"{name}: {said}")
        for process, each in samples.items():
            first = statistics.median(each[:WARM_UP])
            growth = max(each) - first
            holds = holds and growth <= MULTIPLE * state_mb
            print(f"  {process:12s} {first:7.1f} MB at first, {max(each):7.1f} at most, "
                  f"{each[-1]:7.1f} at the end: {growth / state_mb:+.2f} times the state")
    print("holds" if holds else "does NOT hold")
    sys.exit(0 if holds else 1)


main()
