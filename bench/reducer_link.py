#!/usr/bin/env python3
"""Step time of replicas by sync.reducer, over links that are shaped. Only for root.

    bench/reducer_link.py build/release/skein [--rate 1gbit] [--rounds 3] [--steps 12]
    bench/reducer_link.py build/release/skein --hosts 2 --on-each 4 --rate 40mbit --inside 4gbit
                          --reducers sum,hisum,topk,topka2a,hitopk --width 256

Coordinator and hosts are in network namespaces of their own; each host's link is shaped. There is a
replica for each worker, one on each of two hosts unless `--on-each` says more; what workers of a host
send one another goes through its loopback, which `--inside` shapes: all of them share that rate.
The model has 13 million parameters (50 MB of gradients), 3 million with --width 256, and few tokens,
so the links are what takes time.

With hitopk and a dense reducer among them, what it saves is printed beside the 25 to 40 % that its
authors state [R, abstract], of whole training steps of CNNs and a Transformer on 16 hosts of 8 V100.
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
n_embd = %d
positions = 64
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
micro_batch_size = %d
global_batch_size = %d
[parallelism]
pipeline_parallel_degree = 1
data_parallel_replicate_degree = %d
[validation]
batches = 0
[checkpoint]
enable = false
[elastic]
snapshot_interval = 0
[profiling]
enable_profiling = false
"""
DENSE = ("sum", "hisum")
WARM_UP = 3  # Steps that are not counted.
# Heartbeats wait behind gradients on the shaped link.
PATIENCE = ["--elastic.heartbeat_timeout_seconds", "10"]


def run(place, network, options, reducer, words):
    """Seconds of each step but the first ones, and the last loss."""
    job = os.path.join(place.folder, "job.toml")
    workers = options.hosts * options.on_each
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB % (options.width, workers, workers, workers))
    training = ElasticRun(place, f"run-{time.monotonic_ns()}", 0, "--sync.reducer", reducer,
                          "--training.steps", str(options.steps + WARM_UP), *PATIENCE, *words,
                          network=network, job=job, waits_for=workers)
    try:
        for _ in range(workers):
            training.join()
        if training.finish(seconds=600) != 0:
            sys.exit(f"the run with {reducer} failed: {training.errors()}")
    finally:
        training.end()
    report = training.steps()
    return [each["step_seconds"] for each in report[WARM_UP:]], report[-1]["loss"]


def print_claim(medians):
    """What hitopk saves of the step of the better dense reducer, beside its authors' claim. Seconds."""
    dense = [medians[reducer] for reducer in DENSE if reducer in medians]
    if not dense or "hitopk" not in medians:
        return
    saved = 1 - medians["hitopk"] / min(dense)
    text = f"hitopk saves {saved:.0%} of the better dense step; its authors state 25 to 40 % [R, abstract]"
    if saved > 0:
        text += (": they train models that compute for long, and here hardly anything but exchange takes time. Where "
                 f"exchange that nothing hides is {min(1, 0.25 / saved):.0%} to {min(1, 0.4 / saved):.0%} of the dense "
                 "step, as much as they state is saved")
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("skein")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--inside", help="as --rate, for what workers of a host send one another")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--on-each", type=int, default=1, help="workers on each host")
    parser.add_argument("--reducers", default="sum,bf16,fp16,topk,adasum")
    parser.add_argument("--width", type=int, default=512, help="model.n_embd")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options, words = parser.parse_known_args()
    if os.geteuid() != 0 or not Network.is_possible():
        sys.exit("only root can make networks")
    reducers = options.reducers.split(",")
    seconds = {reducer: [] for reducer in reducers}
    losses = {}
    network = Network(1 + options.hosts, options.on_each)
    try:
        for machine in range(1, 1 + options.hosts):
            network.shape(machine, options.rate, burst="1mb")
            if options.inside:
                network.shape_inside(machine, options.inside)
        with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
            place = Place(options.skein, folder)
            for _ in range(options.rounds):
                for reducer in reducers:
                    times, losses[reducer] = run(place, network, options, reducer, words)
                    seconds[reducer].append(statistics.median(times))
    finally:
        network.remove()
    print(f"{options.hosts} hosts of {options.on_each}, {options.rate}, median step time of "
          f"{options.rounds} runs of {options.steps} steps")
    first = statistics.median(seconds[reducers[0]])
    for reducer, medians in seconds.items():
        middle = statistics.median(medians)
        print(f"{reducer:8} {middle * 1e3:7.0f} ms ({min(medians) * 1e3:.0f} to "
              f"{max(medians) * 1e3:.0f}), {first / middle:.2f} times as fast as {reducers[0]}; last "
              f"loss {losses[reducer]:.3f}")
    print_claim({reducer: statistics.median(medians) for reducer, medians in seconds.items()})


main()
