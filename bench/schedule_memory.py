#!/usr/bin/env python3
"""GPipe against early backward at equal memory: throughput and peak memory of real runs.

    bench/schedule_memory.py build/release/skein [--rounds 3]

Two stages on host devices of one thread each. GPipe keeps a stash of every micro-batch, early
backward (1F1B, policy PA) of at most two: so with memory for two stashes GPipe runs steps of two
micro-batches, or recomputes, while early backward runs any number. The paper (DAPPLE, PPoPP'21)
reports 1.6 times GPipe's throughput with 12% less memory for BERT-48 on two V100. The bubble alone
gives (16/17) / (2/3) = 1.41; the rest of the gain here is the update, once per step of 16 instead of
once per step of 2. Peak memory is the largest resident set of a worker process.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

JOB = """
[job]
name = "memory"
[model]
n_layer = 6
n_head = 4
n_embd = 192
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 128
micro_batch_size = 4
[parallelism]
pipeline_parallel_degree = 2
[validation]
batches = 0
[checkpoint]
enable = false
"""

CASES = [  # Name, schedule, micro-batches of a step, recomputation.
    ("GPipe, M = 2", "GPipe", 2, False),
    ("GPipe, M = 16", "GPipe", 16, False),
    ("GPipe + recompute, M = 16", "GPipe", 16, True),
    ("early backward, M = 2", "1F1B", 2, False),
    ("early backward, M = 16", "1F1B", 16, False),
    ("early backward + recompute, M = 16", "1F1B", 16, True),
]
ROWS, TOKENS, MICROBATCHES = 4, 128, 96  # Micro-batches of a whole run.


def peak_bytes(pid):
    """Largest resident sets of the children of a process, as far as they still run."""
    peaks = {}
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="utf-8") as file:
                children = file.read().split()
        except OSError:
            continue
        for child in children:
            try:
                with open(f"/proc/{child}/status", encoding="utf-8") as file:
                    line = next(line for line in file if line.startswith("VmHWM"))
            except (OSError, StopIteration):
                continue
            peaks[child] = int(line.split()[1]) * 1024
    return peaks


def run(skein, folder, schedule, microbatches, recompute):
    """Tokens per second after the first step, and the peak memory of a worker in bytes."""
    dump = os.path.join(folder, f"{schedule}-{microbatches}-{recompute}-{time.time_ns()}")
    words = [skein, "train", os.path.join(folder, "job.toml"), "--job.dump_folder", dump, "--quiet",
             "--parallelism.pipeline_parallel_schedule", schedule, "--training.steps",
             str(MICROBATCHES // microbatches + 1), "--training.global_batch_size",
             str(ROWS * microbatches)] + (["--training.recompute"] if recompute else [])
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    peaks = {}
    while process.poll() is None:
        peaks.update(peak_bytes(process.pid))
        time.sleep(0.05)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)} failed")
    with open(glob.glob(os.path.join(dump, "*-*", "metrics.jsonl"))[0], encoding="utf-8") as file:
        steps = [json.loads(line) for line in file][1:]
    seconds = sum(step["step_seconds"] for step in steps)
    return len(steps) * microbatches * ROWS * TOKENS / seconds, max(peaks.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "job.toml"), "w", encoding="utf-8") as file:
            file.write(JOB)
        results = {name: [] for name, *_ in CASES}
        for _ in range(options.rounds):  # Interleaved, so that noise hits all alike.
            for name, *case in CASES:
                results[name].append(run(skein, folder, *case))
        base = statistics.median(rate for rate, _ in results[CASES[0][0]])
        base_bytes = statistics.median(peak for _, peak in results[CASES[0][0]])
        print(f"two stages, {options.rounds} rounds of {MICROBATCHES} micro-batches")
        print(f"{'':36} {'tokens/s: median [min, max]':>32} {'':>7} {'peak MB':>8} {'':>6}")
        for name, values in results.items():
            rates = [rate for rate, _ in values]
            peak = statistics.median(peak for _, peak in values)
            text = f"{statistics.median(rates):,.0f} [{min(rates):,.0f}, {max(rates):,.0f}]"
            print(f"{name:36} {text:>32} {statistics.median(rates) / base:6.2f}x {peak / 1e6:8.1f} "
                  f"{peak / base_bytes - 1:+6.0%}")
        print("ratios are to the first line; the paper: 1.6x and -12%")


main()
