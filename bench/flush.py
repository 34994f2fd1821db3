#!/usr/bin/env python3
"""What a flush costs: the bubble of real runs with one claim in flight and with several.

    bench/flush.py build/release/skein [--repeats 3] [--iterations 40] [--realtime]

One pipeline replica of four stages under local updates, four micro-batches in a claim, on devices that only sleep.
The bubble is the share of a round in which a device does nothing, the mean of the stages. With F and B
of a micro-batch and n claims in a round, the prediction has no transfer, no control and no wake-up:
  flushed     n ((M + S - 1) (F + B) + U) for n (M (F + B) + U) of work
  in flight   the pipeline fills and drains once in a round: (S - 1) (F + B) more than the work
Target, fixed before: within 3 points. Each round ends with the global average, which nobody else takes part
in here. The order of kinds changes with each repeat.
"""
import argparse
import statistics
import sys
import tempfile

from realtime import parse_args
from trained import metrics_of

STAGES, MICROBATCHES = 4, 4
FORWARD_MS, BACKWARD_MS, UPDATE_MS = 10, 20, 4
CLAIMS = (1, 2, 3)
TARGET_POINTS = 3

JOB = """
[job]
name = "flush"
[model]
n_layer = 4
n_head = 4
n_embd = 64
tie_word_embeddings = false
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 32
micro_batch_size = 1
global_batch_size = 4
[parallelism]
pipeline_parallel_degree = 4
data_parallel_replicate_degree = 1
[device]
type = "sleep"
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[sync]
policy = "sdpipe"
[elastic]
snapshot_interval = 0
watch_speeds = false
"""


def predicted(claims, iterations):
    work = iterations * (MICROBATCHES * (FORWARD_MS + BACKWARD_MS) + UPDATE_MS)
    fill = (STAGES - 1) * (FORWARD_MS + BACKWARD_MS)
    total = work + fill * (iterations if claims == 1 else 1)
    return 1 - work / total


def measure(skein, claims, iterations, folder):
    """The bubble of each round but the first, in which connections are made."""
    words = {"training.steps": 3 * iterations,
             "sync.round_steps": iterations, "sync.claims_in_flight": claims,
             "device.sleep_forward_us": 1000 * FORWARD_MS,
             "device.sleep_backward_us": 1000 * BACKWARD_MS,
             "device.sleep_update_us": 1000 * UPDATE_MS}
    lines = metrics_of(skein, JOB, words, folder)
    rounds = [line for line in lines if line["kind"] == "step"][1:]
    return [line["bubble"] for line in rounds], rounds[-1]["stage_weight_delay"], [
        1000 * line["step_seconds"] / line["steps"] for line in rounds]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40)
    options = parse_args(parser)
    bubbles = {claims: [] for claims in CLAIMS}
    times = {claims: [] for claims in CLAIMS}
    delays = {}
    for repeat in range(options.repeats):
        for claims in CLAIMS if repeat % 2 == 0 else reversed(CLAIMS):
            with tempfile.TemporaryDirectory(prefix="skein-flush-") as folder:
                found, delays[claims], took = measure(options.skein, claims,
                                                      options.iterations, folder)
            bubbles[claims] += found
            times[claims] += took
    print(f"{STAGES} stages, {MICROBATCHES} micro-batches a claim, {options.iterations} claims a round, "
          f"{options.repeats} repeats of two rounds; devices sleep, the rest is real")
    print("claims in flight   bubble (least, most)     predicted   ms a claim   weight delay by stage")
    met = True
    for claims in CLAIMS:
        median = statistics.median(bubbles[claims])
        expected = predicted(claims, options.iterations)
        met = met and abs(median - expected) <= TARGET_POINTS / 100
        print(f"{claims:16}   {median:6.1%} ({min(bubbles[claims]):.1%}, {max(bubbles[claims]):.1%})"
              f"   {expected:9.1%}   {statistics.median(times[claims]):10.1f}   {delays[claims]}")
    print(f"target: within {TARGET_POINTS} points of the prediction: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
