#!/usr/bin/env python3
"""`skein compare` with a learning rate of its own for each variant, tuned with the same effort on other seeds.

    bench/tuned_compare.py build/release/skein examples/tokens.toml [--rates 2e-3 4e-3 8e-3]

First every variant runs with every rate, with the seeds of --tuning-seeds and in the file's first scenario. Of each
variant that rate is taken which reaches the target soonest in the mean, if it does with all of these seeds; where none
does, that with the least validation loss. Then the variants are compared with these rates and the seeds of --seeds in
all scenarios. Both comparisons lie in the file's folder, as `tuning` and `judged`, and so do their experiment files;
the same command again goes on where it was stopped. The target is the file's.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tomllib

RATE = "optimizer.lr"
RUN_FAILED = 1  # The exit code of a comparison in which a run failed; a rate may be too high for one.


def flat(table, before=""):
    """Job keys, whether they are written in quotes or as tables."""
    keys = {}
    for name, value in table.items():
        keys |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return keys


def text_of(compare, job, variants):
    lines = ["[compare]", *(f"{name} = {json.dumps(value)}" for name, value in compare.items())]
    for header, keys in [("job", job), *((f"variants.{name}", keys) for name, keys in variants.items())]:
        lines += ["", f"[{header}]", *(f'"{name}" = {json.dumps(value)}' for name, value in keys.items())]
    return "\n".join(lines) + "\n"


def run(skein, folder, name, compare, job, variants):
    """The lines of compare.csv."""
    own = os.path.join(folder, name)
    os.makedirs(own, exist_ok=True)
    path = own + ".toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text_of({**compare, "folder": own}, job, variants))
    code = subprocess.run([skein, "compare", path], check=False).returncode
    if code not in (0, RUN_FAILED):
        sys.exit(code)
    with open(os.path.join(own, "compare.csv"), encoding="utf-8") as file:
        return list(csv.DictReader(file)), code


def merit(rows):
    """Less is better."""
    reached = [float(row["seconds_to_target"]) for row in rows if row["reached"] == "yes"]
    if len(reached) == len(rows):
        return (0, statistics.mean(reached))
    losses = [math.inf if row["status"] == "failed" else float(row["loss_least"] or math.inf) for row in rows]
    return (1, statistics.mean(losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("experiment")
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-3, 4e-3, 8e-3])
    parser.add_argument("--tuning-seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    if set(options.seeds) & set(options.tuning_seeds):
        sys.exit("--tuning-seeds: rates are tuned on seeds of their own, and some of these are judged")
    with open(options.experiment, "rb") as file:
        experiment = tomllib.load(file)
    for key in ("compare", "variants"):
        if key not in experiment:
            sys.exit(f"{options.experiment}: [{key}] is not there; docs/compare.md has what an experiment has")
    if "base" not in experiment["compare"]:
        sys.exit(f"{options.experiment}: compare.base is not there; it names the job")
    compare, job = experiment["compare"], flat(experiment.get("job", {}))
    variants = {name: flat(keys) for name, keys in experiment["variants"].items()}
    compare["base"] = os.path.abspath(os.path.join(os.path.dirname(options.experiment), compare["base"]))
    stem = os.path.splitext(os.path.basename(options.experiment))[0]
    folder = compare.get("folder", f"outputs/compare-{compare.get('name') or stem}")

    def named(variant, rate):
        return f"{variant}-{rate:g}".replace(".", "_").replace("+", "")

    tried = {named(name, rate): {**keys, RATE: rate} for name, keys in variants.items() for rate in options.rates}
    tuning = {**compare, "seeds": options.tuning_seeds, "scenarios": compare.get("scenarios", ["H0"])[:1]}
    rows, _ = run(options.skein, folder, "tuning", tuning, job, tried)
    for name, keys in variants.items():
        merits = {rate: merit([row for row in rows if row["variant"] == named(name, rate)]) for rate in options.rates}
        keys[RATE] = min(merits, key=merits.get)
        print(f"{name}: {RATE} = {keys[RATE]:g}; " +
              ", ".join(f"{rate:g}: " + (f"{value:.4g} s" if misses == 0 else f"target missed, loss {value:.4g}")
                        for rate, (misses, value) in merits.items()), flush=True)
        if len(options.rates) > 1 and keys[RATE] in (min(options.rates), max(options.rates)):
            print("  no rate beyond this one was tried; --rates takes others")
    _, code = run(options.skein, folder, "judged", {**compare, "seeds": options.seeds}, job, variants)
    sys.exit(code)


main()
