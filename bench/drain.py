#!/usr/bin/env python3
"""How long a worker that is told to leave still takes, and what it costs the run.

    bench/drain.py build/release/skein [--rounds 6]

Two workers with some 100 MB of weights each (300 MB with AdamW's moments), whose devices only sleep;
a third one waits in reserve, so the leaver's whole stage moves to it. Target, fixed before: SIGTERM to
the leaver's end within 5 s, no step repeated.
"""
import argparse
import os
import signal
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "support"))
from elastic_runs import ElasticRun, Place, wait_until  # noqa: E402

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


def leave(run, number):
    """One worker more joins; then the oldest one is told to leave. Seconds until it has ended."""
    run.join()
    wait_until(lambda: len(run.events("worker.joined")) == number + 3, 60)
    run.wait_for_step(run.steps_done() + 3)
    leaver = run.workers.pop(0)
    asked = time.monotonic()
    leaver.send_signal(signal.SIGTERM)
    code = leaver.wait(timeout=60)
    taken = time.monotonic() - asked
    run.wait_for_step(run.steps_done() + 3)
    print(f"round {number + 1}: left after {taken:.2f} s with code {code}", flush=True)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
        job = os.path.join(folder, "job.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        run = ElasticRun(Place(options.skein, folder), "drain", 2, apart=True, job=job)
        try:
            run.wait_for_step(5)
            taken = [leave(run, number) for number in range(options.rounds)]
            print(f"median {statistics.median(taken):.2f} s, largest {max(taken):.2f} s; "
                  f"lost {len(run.events('worker.lost'))}, "
                  f"rolled back {len(run.events('run.rolled_back'))}")
            print(f"target {TARGET_SECONDS} s: {'met' if max(taken) < TARGET_SECONDS else 'MISSED'}")
        finally:
            run.end()


main()
