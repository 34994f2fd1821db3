#!/usr/bin/env python3
"""What being able to recover costs a run that nothing happens to.

    bench/elastic_overhead.py build/release/skein [--pairs 6] [--steps 150]

The same run twice: with snapshots and heartbeats as they are by default, and with neither. 4 stages
on 4 workers whose devices only sleep, 50 ms a step, 3.3 million parameters with AdamW. The pairs are
interleaved and take turns in who is first. Target fixed before: below 2% in the median.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

TARGET = 0.02
WARM_UP_STEPS = 20

JOB = """
[job]
name = "overhead"
[model]
n_layer = 12
n_head = 4
n_embd = 128
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 128
micro_batch_size = 4
global_batch_size = 32
[parallelism]
pipeline_parallel_degree = 4
[device]
type = "sleep"
sleep_forward_us = 500
sleep_backward_us = 1000
sleep_update_us = 50
[validation]
batches = 0
[checkpoint]
enable = false
"""

DEFAULT = ["--elastic.snapshot_interval=-1"]
NONE = ["--elastic.snapshot_interval", "0", "--elastic.heartbeat_interval_seconds", "1000",
        "--elastic.heartbeat_timeout_seconds", "3000"]


def run(skein, folder, name, steps, words):
    """Step times after the first ones, in seconds."""
    dump = os.path.join(folder, name)
    result = subprocess.run([skein, "train", os.path.join(folder, "job.toml"), "--quiet",
                             "--job.dump_folder", dump, "--training.steps", str(steps), *words],
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{name} failed: {result.stderr.strip()}")
    with open(glob.glob(os.path.join(dump, "latest", "metrics.jsonl"))[0],
              encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["step_seconds"] for line in lines if line["kind"] == "step"][WARM_UP_STEPS:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'pair':>4} {'without':>12} {'with':>12} {'ratio of means':>15} {'of medians':>11}")
    means, medians = [], []
    with tempfile.TemporaryDirectory(prefix="skein-overhead-") as folder:
        with open(os.path.join(folder, "job.toml"), "w", encoding="utf-8") as file:
            file.write(JOB)
        for pair in range(options.pairs):
            kinds = [("with", DEFAULT), ("without", NONE)]
            times = {name: run(skein, folder, f"{name}-{pair}", options.steps, words)
                     for name, words in (kinds if pair % 2 else kinds[::-1])}
            mean = {name: statistics.mean(each) for name, each in times.items()}
            middle = {name: statistics.median(each) for name, each in times.items()}
            means.append(mean["with"] / mean["without"])
            medians.append(middle["with"] / middle["without"])
            print(f"{pair + 1:>4} {mean['without'] * 1e3:>9.2f} ms {mean['with'] * 1e3:>9.2f} ms "
                  f"{means[-1]:>15.4f} {medians[-1]:>11.4f}", flush=True)
    cost = statistics.median(means) - 1
    print(f"cost {cost:+.2%} of the mean step in the median of the pairs, "
          f"{min(means) - 1:+.2%} to {max(means) - 1:+.2%}; "
          f"{statistics.median(medians) - 1:+.2%} of the median step")
    print(f"target below {TARGET:.0%}: {'met' if cost < TARGET else 'missed'}")


main()
