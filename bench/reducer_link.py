#!/usr/bin/env python3
"""Step time of two replicas by sync.reducer, over a link that is shaped. Only for root.

    bench/reducer_link.py build/release/skein [--rate 1gbit] [--rounds 3] [--steps 12]

Coordinator and workers are in network namespaces of their own; both workers' links are shaped. The
model has 13 million parameters (50 MB of gradients) and few tokens, so the link is what takes time.
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
from elastic_runs import ElasticRun, Place  # noqa: E402
from namespaces import Network  # noqa: E402

JOB = """
[job]
name = "link"
[model]
n_layer = 4
n_head = 8
n_embd = 512
positions = 64
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
micro_batch_size = 2
global_batch_size = 2
[parallelism]
pipeline_parallel_degree = 1
data_parallel_replicate_degree = 2
[validation]
batches = 0
[checkpoint]
enable = false
[elastic]
snapshot_interval = 0
[profiling]
enable_profiling = false
"""
REDUCERS = ["sum", "bf16", "fp16", "topk", "adasum"]
WARM_UP = 3  # Steps that are not counted.
# Heartbeats wait behind gradients on the shaped link.
PATIENCE = ["--elastic.heartbeat_timeout_seconds", "10"]


def run(place, network, reducer, steps, words):
    """Seconds of each step but the first ones, and the last loss."""
    job = os.path.join(place.folder, "job.toml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB)
    training = ElasticRun(place, f"run-{time.monotonic_ns()}", 2, "--sync.reducer", reducer,
                          "--training.steps", str(steps + WARM_UP), *PATIENCE, *words, network=network,
                          job=job)
    try:
        if training.finish(seconds=300) != 0:
            sys.exit(f"the run with {reducer} failed: {training.errors()}")
    finally:
        training.end()
    report = training.steps()
    return [each["step_seconds"] for each in report[WARM_UP:]], report[-1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("skein")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options, words = parser.parse_known_args()
    if os.geteuid() != 0 or not Network.is_possible():
        sys.exit("only root can make networks")
    seconds = {reducer: [] for reducer in REDUCERS}
    losses = {}
    network = Network(3)
    try:
        for machine in (1, 2):
            network.shape(machine, options.rate, burst="1mb")
        with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
            place = Place(options.skein, folder)
            for _ in range(options.rounds):
                for reducer in REDUCERS:
                    times, losses[reducer] = run(place, network, reducer, options.steps, words)
                    seconds[reducer].append(statistics.median(times))
    finally:
        network.remove()
    print(f"{options.rate}, median step time of {options.rounds} runs of {options.steps} steps")
    dense = statistics.median(seconds["sum"])
    for reducer, medians in seconds.items():
        middle = statistics.median(medians)
        print(f"{reducer:8} {middle * 1e3:7.0f} ms ({min(medians) * 1e3:.0f} to "
              f"{max(medians) * 1e3:.0f}), {dense / middle:.2f} times as fast as sum; last loss "
              f"{losses[reducer]:.3f}")


main()
