#!/usr/bin/env python3
"""Real training on four devices of unequal speed: our plan, an even split, DAPPLE's plan.

    bench/uneven_devices.py build/release/skein [--rounds 3] [--steps 12]

Host devices of one thread, emulated at speeds 1, 1, 0.5 and 0.25 of each other (halved, so that all
four together need less than the two cores of a small machine). Layers and links are measured; the
plans come from `skein plan`. DAPPLE's planner takes all devices for equal, as in the paper. Targets,
fixed before: at least 1.6 times the even split of layers and at least 1.15 times DAPPLE's plan.
The weights after the last step agree with those of one device.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402

SPEEDS = "0.5,0.5,0.25,0.125"
EVEN_TARGET, DAPPLE_TARGET, TOLERANCE = 1.6, 1.15, 1e-4

JOB = """
[job]
name = "uneven"
[model]
n_layer = 10
n_head = 4
n_embd = 128
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 128
micro_batch_size = 8
global_batch_size = 64
[validation]
batches = 0
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "job.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)

        def call(*words):
            return subprocess.run([skein, *words], check=True, cwd=folder, text=True,
                                  stdout=subprocess.PIPE).stdout

        def train(name, *words):
            dump = os.path.join(folder, name)
            call("train", job, "--job.dump_folder", dump, "--quiet", "--training.steps",
                 str(options.steps), *words)
            run = max(glob.glob(os.path.join(dump, "*-*")), key=os.path.getmtime)
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
                times = [json.loads(line)["step_seconds"] for line in file][1:]
            return statistics.median(times), run

        call("profile", job, "--workers", "4", "--device.speeds", SPEEDS)
        plans = {}
        for planner in ("skein", "dapple"):
            plans[planner] = os.path.join(folder, f"{planner}.txt")
            print(call("plan", job, "cluster.toml", "--profile", "profile.json", "--planner",
                       planner, "--out", plans[planner]).split("\n\nplanner")[0] + "\n", flush=True)
        cases = {
            "even split of layers": ["--parallelism.pipeline_parallel_degree", "4"],
            "dapple": ["--parallelism.plan", plans["dapple"], "--workers", "4"],
            "skein": ["--parallelism.plan", plans["skein"], "--workers", "4"],
        }
        _, alone = train("alone", "--workers", "1")
        reference = read_model(newest(alone))
        times = {name: [] for name in cases}
        worst = {}
        for _ in range(options.rounds):  # Interleaved, so that noise hits all alike.
            for name, words in cases.items():
                taken, run = train(name.replace(" ", "-"), *words, "--device.speeds", SPEEDS)
                times[name].append(taken)
                worst[name] = worst_relative(read_model(newest(run)), reference)[0]
        ours = statistics.median(times["skein"])
        print(f"{'plan':22} {'step ms: median [min, max]':>32} {'skein is':>9}  weights off by")
        for name, values in times.items():
            text = (f"{1e3 * statistics.median(values):.0f} [{1e3 * min(values):.0f}, "
                    f"{1e3 * max(values):.0f}]")
            print(f"{name:22} {text:>32} {statistics.median(values) / ours:8.2f}x  {worst[name]:.1e}")
        even = statistics.median(times["even split of layers"]) / ours
        dapple = statistics.median(times["dapple"]) / ours
        met = even >= EVEN_TARGET and dapple >= DAPPLE_TARGET and max(worst.values()) <= TOLERANCE
        print(f"targets: {EVEN_TARGET}x the even split, {DAPPLE_TARGET}x DAPPLE's plan, weights "
              f"within {TOLERANCE:.0e}: {'met' if met else 'MISSED'}")


main()
