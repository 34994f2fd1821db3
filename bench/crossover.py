#!/usr/bin/env python3
"""Two equal jobs that share workers: what one leaves idle while it communicates, the other computes in. Only for
root.

    bench/crossover.py build/release/skein build/release/bench/shared_rate [--rounds 3] [--rate 1gbit]
                       [--steps 12]

Two workers, each on a machine of its own: network namespaces whose links are shaped. A job is two replicas of one
stage, whose devices only sleep (C seconds a step) and whose gradients really go over the links (X seconds that are
not hidden, measured first with devices that take no time). C is chosen so that X is 0.2, 0.5 and 1 times C, with
the all-reduce behind the last backward (comm.bucket_cap_mb = 0), and at the same C with buckets under it, which hide
most of X.

  alone     a step of one job on these workers: one after the other, two jobs take twice that
  mixed     both at once, without turns: pieces of their work mix (sharing.takes_turns = false)
  turns     both at once, in turns
  model     2 (C + X) / max(2 C, 2 X, C + X), of CrossoverScheduler [D]; its claim, 1.2 [R], is that at X = 0.2 C

  predicted   the same by `plans/simulator/shared_simulation`, of C and X alone

Speedups are work done a second beside one after the other. Targets fixed before: turns at least 95% of the model at
each point where the all-reduce comes last, and predicted within 5% of turns at each. How much slower a job is than
alone stands beside it.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from elastic_runs import ElasticRun, Place  # noqa: E402
from namespaces import Network  # noqa: E402
from trained import end_of  # noqa: E402

TARGET = 0.95
PREDICTION_TARGET = 0.05
RATIOS = (0.2, 0.5, 1.0)
WARM_UP = 3
LAYERS = 12
MICRO_BATCHES = 2
BACKWARD_SHARE = 2 / 3  # A block's time is so much backward.

JOB = """
[job]
name = "crossover"
[model]
n_layer = %d
n_head = 4
n_embd = 256
positions = 64
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
micro_batch_size = 2
global_batch_size = %d
[parallelism]
pipeline_parallel_degree = 1
data_parallel_replicate_degree = 2
[device]
type = "sleep"
sleep_update_us = 1
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[elastic]
heartbeat_timeout_seconds = 30
snapshot_interval = 0
watch_speeds = false
""" % (LAYERS, 2 * MICRO_BATCHES)


class Bench:
    def __init__(self, place, network, steps):
        self.place = place
        self.network = network
        self.steps = steps
        self.job = os.path.join(place.folder, "job.toml")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(JOB)

    def run(self, jobs, seconds, cap, *words):
        """Step times of each of so many jobs that run at once, in the time in which all of them train."""
        # A device has half of the rows of a micro-batch.
        block_us = seconds * 1e6 / MICRO_BATCHES / LAYERS * 2
        sleeps = ["--device.sleep_forward_us", f"{block_us * (1 - BACKWARD_SHARE):.1f}",
                  "--device.sleep_backward_us", f"{block_us * BACKWARD_SHARE:.1f}"]
        runs = [ElasticRun(self.place, f"run-{time.monotonic_ns()}", 0, "--training.steps",
                           str(self.steps + WARM_UP), "--comm.bucket_cap_mb", str(cap), *sleeps, *words,
                           network=self.network, job=self.job, waits_for=2)
                for _ in range(jobs)]
        try:
            joins = [word for run in runs for word in ("--join", run.address())]
            for number in (1, 2):
                runs[0].workers.append(
                    runs[0].spawn("worker", *joins, "--bind", "auto", "--insecure",
                                  machine=self.network.machine_of(number)))
            for run in runs:
                if run.finish(seconds=600) != 0:
                    sys.exit(f"a run failed: {run.errors()}")
            return steps_together([run.steps() for run in runs])
        finally:
            for run in runs:
                run.end()


def steps_together(reports):
    """The mean step time of each run between the moments at which all have warmed up and the first ends."""
    begin = max(end_of(lines[WARM_UP - 1]) for lines in reports)
    end = min(end_of(lines[-1]) for lines in reports)
    means = []
    for lines in reports:
        ends = [end_of(line) for line in lines if begin - 1e-3 <= end_of(line) <= end + 1e-3]
        means.append((ends[-1] - ends[0]) / (len(ends) - 1))
    return means


def predicted(rate, compute, exposed, cap):
    asked = ["crossover", compute * 1e6, exposed * 1e6, LAYERS, MICRO_BATCHES, int(cap > 0), 1]
    found = subprocess.run([rate, *map(str, asked)], capture_output=True, text=True, check=True)
    return float(found.stdout)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("skein")
    parser.add_argument("rate_program", help="the program shared_rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if os.geteuid() != 0 or not Network.is_possible():
        sys.exit("only root can make networks")
    network = Network(3)
    held = []
    try:
        for machine in (1, 2):
            network.shape(machine, options.rate, burst="1mb")
        with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
            bench = Bench(Place(options.skein, folder), network, options.steps)
            exposed = bench.run(1, 1e-4, 0)[0]
            print(f"gradients take {exposed * 1e3:.0f} ms over {options.rate}; speedups: median and range of "
                  f"{options.rounds} rounds of {options.steps} steps; slower: a job's own step against alone")
            print("X / C  buckets  alone ms   model  turns                of model  predicted        slower  mixed")
            for ratio in RATIOS:
                compute = exposed / ratio
                for cap in (0, 4):
                    alone, turns, mixed, slower = [], [], [], []
                    for _ in range(options.rounds):
                        alone.append(bench.run(1, compute, cap)[0])
                        both = bench.run(2, compute, cap)
                        turns.append(sum(alone[-1] / each for each in both))
                        slower.append(max(both) / alone[-1])
                        mixed.append(sum(alone[-1] / each for each in bench.run(
                            2, compute, cap, "--sharing.takes_turns", "false")))
                    step = statistics.median(alone)
                    left = max(step - compute, 0)
                    model = 2 * step / max(2 * compute, 2 * left, step)
                    share = statistics.median(turns) / model
                    if cap == 0:
                        held.append(share >= TARGET)
                    guess = predicted(options.rate_program, compute, exposed, cap)
                    error = guess / statistics.median(turns) - 1
                    held.append(abs(error) <= PREDICTION_TARGET)
                    print(f"{left / compute:5.2f}  {'no' if cap == 0 else 'yes':7}  {step * 1e3:8.0f}  {model:6.2f}  "
                          f"{spread(turns):20} {share * 100:7.1f}%  {guess:5.2f} ({error * 100:+5.1f}%)  "
                          f"{statistics.median(slower):6.2f}  "
                          f"{spread(mixed)}", flush=True)
    finally:
        network.remove()
    print("all targets are met" if all(held) else "a target is missed")
    sys.exit(0 if all(held) else 1)


main()
