#!/usr/bin/env python3
"""Grouped parameter servers with real processes, one of eight workers four times slower.

    bench/grouped_servers.py build/release/skein [--steps 400] [--seeds 3] [--realtime]

Basu et al. (HiPC 2018) state in their abstract [R] that with one node delayed by 300 % grouped servers stay within 20 %
of the time without delay, and lose at most 2.5 % of accuracy; models, data and number of nodes are not known to us. Here eight workers, each a pipeline replica of one stage,
train a byte GPT on their emulated processors (4 % of this machine's speed, so that two cores are enough), all on the
same number of samples: a synchronous server without delay, and, delayed, that, groups with servers of their own (two
hops, as in the paper), flat groups (ours) and `auto`. Each has the best of three learning rates, by a seed that does not
count. Time is that of the steps behind the first round; the loss is that of the last validation.
Targets, fixed before: two hops at most 1.20 times the time and 2.5 % more loss, after these figures [R], although a
loss is no accuracy; flat ones, which are ours, 1.12 times and 0.5 %. [R] is what was read in the paper.
"""
import argparse
import statistics
import sys
import tempfile

from realtime import parse_args
from trained import metrics_of

WORKERS = 8
ROUND_STEPS = 50
SPEED = 0.04
RATES = (0.001, 0.002, 0.004)
DELAY = f"H2 factor=4 devices={WORKERS - 1}"
TWO_HOPS = (1.20, 0.025, "after Basu et al. [R]")
FLAT = (1.12, 0.005, "our aim")
RUNS = [
    ("synchronous server", {"sync.policy": "ps"}, None),
    ("2 groups", {"sync.policy": "grouped_ps", "sync.groups": 2}, None),
    ("4 groups", {"sync.policy": "grouped_ps", "sync.groups": 4}, None),
    ("8 groups", {"sync.policy": "grouped_ps", "sync.groups": 8}, None),
    ("grouped_ps", {"sync.policy": "grouped_ps"}, TWO_HOPS),
    ("2 groups, flat", {"sync.policy": "grouped_ps", "sync.groups": 2, "sync.group_servers": "false"}, None),
    ("4 groups, flat", {"sync.policy": "grouped_ps", "sync.groups": 4, "sync.group_servers": "false"}, None),
    ("grouped_ps, flat", {"sync.policy": "grouped_ps", "sync.group_servers": "false"}, FLAT),
    ("auto", {"sync.policy": "auto"}, None),
]

JOB = """
[job]
name = "groups"
[model]
n_layer = 2
n_head = 4
n_embd = 48
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 32
micro_batch_size = 16
global_batch_size = 16
[optimizer]
name = "adamw"
[lr_scheduler]
warmup_steps = 0
decay_type = "none"
[parallelism]
pipeline_parallel_degree = 1
data_parallel_replicate_degree = 8
[validation]
batches = 8
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[elastic]
snapshot_interval = 0
watch_speeds = false
"""


def train(options, words, delay, rate, seed):
    """Seconds behind the first round, and the loss of the last validation."""
    with tempfile.TemporaryDirectory(prefix="skein-groups-") as folder:
        words = {"training.steps": options.steps, "sync.round_steps": ROUND_STEPS,
                 "validation.interval": options.steps, "optimizer.lr": rate, "debug.seed": seed,
                 "device.speed": SPEED, "device.scenario": delay, **words}
        lines = metrics_of(options.skein, JOB, words, folder)
    steps = [line for line in lines if line["kind"] == "step"]
    losses = [line["loss"] for line in lines if line["kind"] == "validation"]
    return sum(line["step_seconds"] for line in steps if line["step"] > ROUND_STEPS), losses[-1]


def best_rate(options, words, delay):
    return min(RATES, key=lambda rate: train(options, words, delay, rate, seed=100)[1])


def spread(values, text):
    return f"{text.format(statistics.median(values))} ({text.format(min(values))}, {text.format(max(values))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    options = parse_args(parser)
    seeds = range(1, options.seeds + 1)
    rate = best_rate(options, RUNS[0][1], "H0")
    undisturbed = [train(options, RUNS[0][1], "H0", rate, seed) for seed in seeds]
    print(f"{options.steps} steps, AdamW, lr {rate}, seeds {len(seeds)}; a synchronous server without delay: "
          f"{spread([each[0] for each in undisturbed], '{:.1f}')} s, loss {spread([each[1] for each in undisturbed], '{:.3f}')}")
    print(f"\n1 of {WORKERS} workers 4 times slower; relative to that, by seed: median (least, most)")
    print(f"{'':20} {'time':24} {'loss':28} lr")
    all_met = True
    for name, words, target in RUNS:
        rate = best_rate(options, words, DELAY)
        runs = [train(options, words, DELAY, rate, seed) for seed in seeds]
        times = [run[0] / reference[0] for run, reference in zip(runs, undisturbed)]
        losses = [run[1] / reference[1] - 1 for run, reference in zip(runs, undisturbed)]
        verdict = ""
        if target:
            met = statistics.median(times) <= target[0] and statistics.median(losses) <= target[1]
            verdict = f"{'met' if met else 'MISSED'}: {target[0]:.2f}, {target[1]:.1%}, {target[2]}"
            all_met = all_met and met
        print(f"{name:20} {spread(times, '{:.2f}'):24} {spread(losses, '{:+.1%}'):28} {rate:<7g} {verdict}", flush=True)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
