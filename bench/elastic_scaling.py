#!/usr/bin/env python3
"""Throughput after workers joined, left or became slow, against a fresh start with the same ones.

  bench/elastic_scaling.py build/release/skein

Devices only sleep, and the planner chooses every plan. One run grows 2 -> 4 -> 8 workers and shrinks
to 5 (three are killed at once); a worker of another run becomes four times slower and recovers. Each
settled step time is compared with that of a run that was started like that, and with what the
simulator predicts for the best plan. Targets, fixed before the run: within 5% of the fresh start, and
95% of the predicted throughput after the loss; 20 steps to settle after a change of speed.
"""
import os
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "support"))
from elastic_runs import ElasticRun, Place, wait_until  # noqa: E402

STEPS = 60  # That are timed of each state.
SETTLE = 20  # Steps in which a change must have settled.
WORDS = ["--parallelism.pipeline_parallel_degree", "auto", "--device.type", "sleep",
         "--device.sleep_forward_us", "6000", "--device.sleep_backward_us", "12000",
         "--device.sleep_update_us", "50", "--model.n_layer", "14", "--model.n_embd", "32",
         "--training.micro_batch_size", "4", "--training.global_batch_size", "32",
         "--checkpoint.enable=false", "--validation.batches", "0",
         "--profiling.enable_profiling=false", "--training.steps", "1000000"]


class Run(ElasticRun):
    def __init__(self, place, workers, *words):
        super().__init__(place, f"run-{time.monotonic_ns()}", workers, *WORDS, *words)

    def wait(self, holds, seconds=180):
        if not wait_until(lambda: holds() or self.has_ended(), seconds, 0.05) or self.has_ended():
            raise RuntimeError("the run does not get there: " + self.errors())

    def wait_for_workers(self, count):
        self.wait(lambda: self.steps() and self.steps()[-1]["workers"] == count)

    def settled_seconds(self):
        """Median time of the next steps, and the largest, once it has settled."""
        first = self.steps()[-1]["step"] if self.steps() else 0
        self.wait(lambda: self.steps() and self.steps()[-1]["step"] > first + SETTLE + STEPS)
        times = [each["step_seconds"] for each in self.steps() if each["step"] > first + SETTLE]
        return statistics.median(times), max(times)

    def predicted_seconds(self):
        made = self.events("plan.made")
        return float(made[-1]["predicted_step_us"]) / 1e6 if made else 0


def fresh(place, workers, *words):
    run = Run(place, workers, *words)
    try:
        run.wait(lambda: len(run.steps()) > 3)
        return run.settled_seconds()[0], run.predicted_seconds()
    finally:
        run.end()


def report(name, seconds, baseline, predicted):
    ratio = seconds / baseline - 1
    print(f"{name:34} {seconds * 1e3:8.1f} ms   fresh {baseline * 1e3:8.1f} ms  {ratio:+7.1%}   "
          f"predicted {predicted * 1e3:8.1f} ms  {predicted / seconds:6.1%} of its throughput",
          flush=True)


def measure(place):
    baseline = {count: fresh(place, count) for count in (2, 4, 8, 5)}
    run = Run(place, 2)
    try:
        run.wait(lambda: len(run.steps()) > 3)
        for count, change in ((2, 0), (4, 2), (8, 4)):
            if change:
                asked = time.monotonic()
                for _ in range(change):
                    run.join()
                run.wait_for_workers(count)
                print(f"  {change} joined: in use {time.monotonic() - asked:.1f} s after they "
                      "were started", flush=True)
            seconds, _ = run.settled_seconds()
            report(f"{count} workers", seconds, *baseline[count])
        for worker in run.workers[:3]:
            worker.kill()
        run.wait_for_workers(5)
        seconds, _ = run.settled_seconds()
        report("5 workers, three were killed", seconds, *baseline[5])
    finally:
        run.end()
    uneven, predicted = fresh(place, 4, "--device.speeds", "1,1,0.25,1")
    run = Run(place, 4, "--chaos", "w3:slow=4x@step=40;w3:slow=1x@step=160")
    try:
        run.wait(lambda: len(run.steps()) > 158)
        times = [each["step_seconds"] for each in run.steps()]
        report("one of 4 became 4x slower", statistics.median(times[64:155]), uneven, predicted)
        print("  plans changed after steps",
              [each["step"] for each in run.events("run.continued")], flush=True)
        run.wait(lambda: len(run.steps()) > 260)
        times = [each["step_seconds"] for each in run.steps()]
        report("... and has recovered", statistics.median(times[184:]), *baseline[4])
        print("  plans changed after steps",
              [each["step"] for each in run.events("run.continued")], flush=True)
    finally:
        run.end()


def main():
    with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
        measure(Place(sys.argv[1], folder))


main()
