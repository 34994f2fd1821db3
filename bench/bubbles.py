#!/usr/bin/env python3
"""A second job in the bubbles of a pipeline.

    bench/bubbles.py build/release/skein build/release/bench/shared_rate [--rounds 3] [--steps 80]

Four workers. The first job is a pipeline of four stages with four micro-batches, which leaves each device idle for 43%
of the time; it has the larger priority. The second is four replicas of one stage, whose pieces of work take a share of
the first one's. All devices only sleep: what is real is who gets the device when, and all messages. Each round measures
the first job alone and both together. Used is the part of the time that the first leaves the devices idle alone, in
which the second computes. Simulated is what
`plans/simulator/shared_simulation` makes of the same times.

Targets fixed before, for pieces of a quarter: at least 80% used, and the first job at most 5% slower.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

from trained import end_of

STAGES = 4
FORWARD_US, BACKWARD_US = 20000, 40000  # A stage and a micro-batch of the first job.
SECOND_MICRO_BATCHES = 64
SHARES = (0.1, 0.25, 0.5)
WARM_UP = 4
USED_TARGET, SLOWER_TARGET, JUDGED_SHARE = 0.8, 1.05, 0.25

JOB = """
[job]
name = "%s"
[model]
n_layer = %d
n_head = 4
n_embd = 64
positions = 32
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
micro_batch_size = %d
global_batch_size = %d
[parallelism]
pipeline_parallel_degree = %d
data_parallel_replicate_degree = %d
[device]
type = "sleep"
sleep_update_us = 1
[sharing]
priority = %d
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[elastic]
snapshot_interval = 0
watch_speeds = false
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def lines_of(folder, name):
    path = max(glob.glob(os.path.join(folder, name + "-2*", "metrics.jsonl")), key=os.path.getmtime)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if '"step"' in line]


class Bench:
    def __init__(self, skein, folder, steps):
        self.skein = os.path.abspath(skein)
        self.folder = folder
        self.steps = steps

    def jobs(self, share):
        """Devices of a run have one pace: the second job's blocks make its pieces as long as they should be."""
        first = JOB % ("first", STAGES * 20, 1, STAGES, STAGES, 1, 1)
        blocks = round(20 * share * STAGES)  # A replica has one row of four.
        second = JOB % ("second", blocks, STAGES, STAGES * SECOND_MICRO_BATCHES, 1, STAGES, 0)
        return (write(os.path.join(self.folder, "first.toml"), first),
                write(os.path.join(self.folder, "second.toml"), second))

    def train(self, *jobs, steps):
        words = ["--device.sleep_forward_us", str(FORWARD_US / 20), "--device.sleep_backward_us",
                 str(BACKWARD_US / 20), "--job.dump_folder", self.folder, "--training.steps", str(steps),
                 "--workers", str(STAGES), "--quiet"]
        run = subprocess.run([self.skein, "train", *jobs, *words], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(run.stderr)


def mean_step(lines, begin=None, end=None):
    ends = [end_of(line) for line in lines[WARM_UP - 1:]]
    ends = [each for each in ends if (begin is None or each >= begin) and (end is None or each <= end)]
    return (ends[-1] - ends[0]) / (len(ends) - 1), ends[0], ends[-1]


def round_of(bench, share):
    first, second = bench.jobs(share)
    bench.train(first, steps=bench.steps)
    alone_lines = lines_of(bench.folder, "first")
    alone, _, _ = mean_step(alone_lines)
    bench.train(first, second, steps=bench.steps)
    with_other, begin, end = mean_step(lines_of(bench.folder, "first"))
    other = [line for line in lines_of(bench.folder, "second") if begin <= end_of(line) <= end]
    busy = sum(line["stage_busy_seconds"][0] for line in other[1:])
    span = end_of(other[-1]) - end_of(other[0])
    idle_share = 1 - STAGES * (FORWARD_US + BACKWARD_US) * 1e-6 / alone
    return with_other / alone, busy / span / idle_share if span > 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("skein")
    parser.add_argument("rate_program", help="the program shared_rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    held = True
    print("piece  used idle time             simulated  first job slower by    simulated")
    with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
        bench = Bench(options.skein, folder, options.steps)
        for share in SHARES:
            found = [round_of(bench, share) for _ in range(options.rounds)]
            slower = [each[0] for each in found]
            used = [each[1] for each in found]
            asked = ["bubbles", FORWARD_US, BACKWARD_US, share, SECOND_MICRO_BATCHES]
            guess = subprocess.run([options.rate_program, *map(str, asked)], capture_output=True, text=True,
                                   check=True).stdout.split()
            if share == JUDGED_SHARE:
                held = statistics.median(used) >= USED_TARGET and statistics.median(slower) <= SLOWER_TARGET
            print(f"{share:5.2f}  {statistics.median(used) * 100:5.1f}% ({min(used) * 100:.1f} to "
                  f"{max(used) * 100:.1f})   {float(guess[0]) * 100:8.1f}%  {(statistics.median(slower) - 1) * 100:+5.1f}% "
                  f"({(min(slower) - 1) * 100:+.1f} to {(max(slower) - 1) * 100:+.1f})   {(float(guess[1]) - 1) * 100:+5.1f}%",
                  flush=True)
    print("all targets are met" if held else "a target is missed")
    sys.exit(0 if held else 1)


main()
