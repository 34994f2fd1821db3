#!/usr/bin/env python3
"""Trains a small GPT for 200 steps on the host and on a GPU, and compares the losses of all steps.

    same_curve.py SKEIN [--steps N] [--profile FILE]

With --profile it measures the layers of GPT-2 (124 M) on the GPU instead, into FILE, for the planner. Exit
code 1 where a loss differs by more than its precision allows, or a run ends early.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import tempfile

# A loss's relative difference at the most. Rounding grows along a curve: these are a hundredth of what
# a curve falls by.
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
JOB = """
[job]
name = "curve"
dump_folder = "{folder}"
[model]
n_layer = 4
n_head = 4
n_embd = 256
[training]
steps = {steps}
seq_len = 128
micro_batch_size = 8
global_batch_size = 16
[optimizer]
lr = 1e-3
[data]
dataset = "text"
path = "{text}"
"""
GPT2 = ["--model.flavor", "gpt2", "--model.n_layer", "12", "--model.n_head", "12", "--model.n_embd", "768",
        "--training.seq_len", "1024", "--training.micro_batch_size", "4",
        "--device.precision", "bfloat16"]


def run(*words):
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(result.stdout[-2000:], result.stderr[-2000:])
    return result.returncode == 0


def losses(skein, job, folder, name, *words):
    out = os.path.join(folder, name)
    if not run(skein, "train", job, "--job.dump_folder", out, "--workers", "1", *words):
        return None
    rows = []
    for path in glob.glob(os.path.join(out, "*-*", "metrics.jsonl")):
        with open(path, encoding="utf-8") as file:
            rows += [row["loss"] for row in map(json.loads, file) if row["kind"] == "step"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("skein")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--profile")
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    with tempfile.TemporaryDirectory(prefix="skein-curve-") as folder:
        text, job = os.path.join(folder, "numbers.txt"), os.path.join(folder, "job.toml")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(f"{number}\n" for number in range(1, 60001))
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(folder=folder, steps=options.steps, text=text))
        if options.profile:
            cluster = os.path.join(folder, "cluster.toml")
            return 0 if run(skein, "profile", job, "--workers", "1", "--device.type", "cuda", *GPT2, "--profile-out",
                            os.path.abspath(options.profile), "--cluster-out", cluster) else 1
        with concurrent.futures.ThreadPoolExecutor() as pool:
            runs = {precision: pool.submit(losses, skein, job, folder, precision, "--device.type", "cuda",
                                           "--device.precision", precision) for precision in TOLERANCE}
            host = losses(skein, job, folder, "host")
        if not host:
            return 1
        bad = 0
        for precision, tolerance in TOLERANCE.items():
            got = runs[precision].result()
            if not got or len(got) != len(host):
                print(f"{precision}: no {len(host)} steps")
                bad += 1
                continue
            worst, step = max((abs(a - b) / b, i) for i, (a, b) in enumerate(zip(got, host)))
            bad += worst > tolerance
            print(f"{precision}: losses of {len(host)} steps differ by {worst:.1e} at the most, at step {step}; last "
                  f"{got[-1]:.4f}, on the host {host[-1]:.4f}{'' if worst <= tolerance else ': TOO MUCH'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
