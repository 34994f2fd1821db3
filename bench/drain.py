#!/usr/bin/env python3
"""How long a worker that is told to leave still takes, and what it costs the run.

    bench/drain.py build/release/skein [--rounds 6]

Two workers with some 100 MB of weights each (300 MB with AdamW's moments), whose devices only sleep;
a third one waits in reserve, so the leaver's whole stage moves to it. Target, fixed before: SIGTERM to
the leaver's end within 5 s, no step repeated.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TARGET_SECONDS = 5
JOB = """
[job]
name = "drain"
[model]
n_layer = 10
n_head = 8
n_embd = 640
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
steps = 1000000
seq_len = 64
micro_batch_size = 2
global_batch_size = 8
[parallelism]
pipeline_parallel_degree = 2
[device]
type = "sleep"
sleep_forward_us = 1000
sleep_backward_us = 2000
sleep_update_us = 50
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
"""


def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]
    except OSError:
        return []


def wait(holds, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline or process.poll() is not None:
            sys.exit("the run does not get there")
        time.sleep(0.002)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
        with open(os.path.join(folder, "job.toml"), "w", encoding="utf-8") as file:
            file.write(JOB)
        start = [skein, "coordinator", "job.toml", "--workers", "2", "--listen", "127.0.0.1:0",
                 "--job.dump_folder", "runs"]
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        coordinator = subprocess.Popen(start, **quiet)
        latest = os.path.join(folder, "runs", "latest")
        address = os.path.join(latest, "coordinator.address")
        wait(lambda: os.path.exists(address), coordinator)
        with open(address, encoding="utf-8") as file:
            join = [skein, "worker", "--join", file.read().strip()]

        def count(name):
            return sum(each["event"] == name for each in lines(os.path.join(latest, "events.jsonl")))

        def steps():
            found = lines(os.path.join(latest, "metrics.jsonl"))
            return sum(each["kind"] == "step" for each in found)

        workers = [subprocess.Popen(join, **quiet) for _ in range(2)]
        wait(lambda: steps() > 5, coordinator)
        taken = []
        try:
            for number in range(options.rounds):
                workers.append(subprocess.Popen(join, **quiet))
                wait(lambda: count("worker.joined") == number + 3, coordinator)
                before = steps()
                wait(lambda: steps() > before + 3, coordinator)
                leaver = workers.pop(0)
                asked = time.monotonic()
                leaver.send_signal(signal.SIGTERM)
                leaver.wait()
                taken.append(time.monotonic() - asked)
                done = steps()
                wait(lambda: steps() > done + 3, coordinator)
                print(f"round {number + 1}: left after {taken[-1]:.2f} s with code "
                      f"{leaver.returncode}", flush=True)
            print(f"median {statistics.median(taken):.2f} s, largest {max(taken):.2f} s; "
                  f"lost {count('worker.lost')}, rolled back {count('run.rolled_back')}")
            print(f"target {TARGET_SECONDS} s: {'met' if max(taken) < TARGET_SECONDS else 'MISSED'}")
        finally:
            for process in [*workers, coordinator]:
                process.terminate()
                process.wait()


main()
