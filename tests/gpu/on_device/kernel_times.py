#!/usr/bin/env python3
"""Adds up what `ncu --csv --page raw --metrics gpu__time_duration.sum` has printed, by kernel.

    kernel_times.py NCU.csv [--steps N]

Prints microseconds in one of N steps (N > 1), calls and the mean of each kernel, most time first. The first Nth
of the calls is left out: the program's start, and a step that nothing was ready for. Exit code 1 without calls.
"""
import argparse
import collections
import csv
import re
import sys


def short(name):
    name = re.sub(r"\(.*", "", name).replace("void ", "").replace("skein::gpu::kernels::", "")
    return name if len(name) < 90 else name[:87] + "..."


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=3, help="steps that the program made")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    calls = [(short(row["Kernel Name"]), row["gpu__time_duration.sum"]) for row in rows if row.get("ID")]
    unit = next((row["gpu__time_duration.sum"] for row in rows if not row.get("ID")), "ns")
    scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3}.get(unit, 1e-3)
    if not calls or options.steps < 2:
        sys.exit(f"{options.file} has {len(calls)} calls of kernels, of {options.steps} steps")
    calls = calls[len(calls) // options.steps:]
    steps = options.steps - 1
    total, count = collections.Counter(), collections.Counter()
    for name, value in calls:
        total[name] += float(value.replace(",", "")) * scale
        count[name] += 1
    everything = sum(total.values())
    print(f"one step: {everything / steps:.0f} us in {len(calls) / steps:.0f} kernels")
    for name, us in total.most_common(40):
        print(f"{us / steps:9.1f} us {100 * us / everything:5.1f} % {count[name] / steps:6.1f} x "
              f"{us / count[name]:8.1f}  {name}")


if __name__ == "__main__":
    main()
