#!/usr/bin/env python3
"""Throughput of a run that a crash-looping host joins: one new process a second, each dead a moment
later.

    bench/flapping.py build/release/skein [--seconds 60]

Two workers whose devices only sleep, alone for --seconds; then the host begins, and after a minute the
steps of --seconds are counted again, and once more alone when it has stopped. Target fixed before: at
least 90% of the throughput alone.
"""
import argparse
import os
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from elastic_runs import ElasticRun, Place  # noqa: E402

TARGET = 0.9
WARM_UP = 60
LIFE_SECONDS = 0.9  # Longer than the coordinator waits for others that may come with them.
JOB = ["--training.steps", "1000000", "--device.type", "sleep", "--device.sleep_forward_us", "1000",
       "--device.sleep_backward_us", "2000", "--checkpoint.enable", "false",
       "--validation.batches", "0"]


def throughput(run, seconds):
    """Committed steps a second; those that are taken back and done again count once."""
    begin, start = run.steps_done(), time.monotonic()
    time.sleep(seconds)
    return (run.steps_done() - begin) / (time.monotonic() - start)


def crash_loop(run, stop, counts):
    while not stop.is_set():
        start = time.monotonic()
        looper = run.spawn("worker", "--join", run.address())
        time.sleep(LIFE_SECONDS)
        looper.kill()
        looper.wait()
        counts.append(looper.pid)
        time.sleep(max(0, 1 - (time.monotonic() - start)))


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("skein")
    arguments.add_argument("--seconds", type=int, default=60)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = ElasticRun(Place(options.skein, folder), "flapping", 2, *JOB, apart=True)
        stop, loopers = threading.Event(), []
        try:
            run.wait_for_step(20)
            alone = throughput(run, options.seconds)
            loop = threading.Thread(target=crash_loop, args=(run, stop, loopers))
            loop.start()
            first = throughput(run, WARM_UP)
            beside = throughput(run, options.seconds)
            plans = len(run.events("plan.made"))
            rollbacks = len(run.events("run.rolled_back"))
            stop.set()
            loop.join()
            after = throughput(run, options.seconds)
        finally:
            stop.set()
            run.end()
    ratio = beside / ((alone + after) / 2)
    print(f"steps a second: {alone:.2f} alone, {first:.2f} in the first {WARM_UP} s of the crash loop, "
          f"{beside:.2f} in the {options.seconds} s after that, {after:.2f} alone again")
    print(f"{len(loopers)} processes, {plans} plans, {rollbacks} rollbacks")
    print(f"{ratio:.1%} of the throughput alone; target {TARGET:.0%}: "
          f"{'holds' if ratio >= TARGET else 'does NOT hold'}")
    sys.exit(0 if ratio >= TARGET else 1)


main()
