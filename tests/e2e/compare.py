#!/usr/bin/env python3
"""`skein compare`: variants of a tiny job in real runs, resumed, interrupted, with one that fails."""
import csv
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SMALL_JOB, Program  # noqa: E402

FAULT, USAGE, STOPPED = 1, 2, 75
LIMIT_SECONDS = 60 * int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
EXPERIMENT = f"""
[compare]
base = "{SMALL_JOB}"
workers = 2
target = 5.3
seeds = [1, 2]
scenarios = ["H2 factor=2 devices=0"]

[job]
"training.steps" = 8
"validation.interval" = 2
"profiling.enable_profiling" = false

[variants.pipeline]

[variants.replicas]
parallelism.pipeline_parallel_degree = 1
parallelism.data_parallel_replicate_degree = 2
"""


def write(program, name, text):
    path = os.path.join(program.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def first_losses(folder, seed, variant):
    """Training losses before the variants' sums differ by rounding."""
    metrics = read(folder, f"runs/seed-{seed}/1-H2-factor-2-devices-0/{variant}", "latest",
                   "metrics.jsonl")
    lines = [json.loads(line) for line in metrics.splitlines()]
    return [round(line["loss"], 3) for line in lines if line["kind"] == "step"]


def compares(program):
    experiment = write(program, "exp.toml", EXPERIMENT)
    result = program.run("compare", experiment, "--folder", "cmp")
    program.expect("makes all runs", result.returncode == 0 and result.stdout.count("took") == 4,
                   result.stdout + result.stderr)
    folder = os.path.join(program.folder, "cmp")
    rows = list(csv.DictReader(read(folder, "compare.csv").splitlines()))
    program.expect("the CSV has a line for each run, seeds outermost",
                   [(row["seed"], row["variant"]) for row in rows] ==
                   [(s, v) for s in "12" for v in ("pipeline", "replicas")], str(rows))
    program.expect("all of them reached the target in some time",
                   all(row["reached"] == "yes" and float(row["seconds_to_target"]) > 0 and
                       row["equal_samples"] == "128" for row in rows), str(rows))
    page = read(folder, "compare.html")
    for drawing in re.findall(r"<svg.*?</svg>", page, re.S):
        xml.etree.ElementTree.fromstring(drawing)
    outside = page.replace("http://www.w3.org/2000/svg", "")
    program.expect("the page has drawings and refers to nothing outside",
                   page.count("<svg") == 3 and not re.search(r"https?:|src=|href=", outside))
    program.expect("the page and the terminal say the same",
                   re.search(r'class="verdict">([^<]*)<', page).group(1) in result.stdout)
    program.expect("variants of a seed see the same data from the same weights, seeds others",
                   first_losses(folder, 1, "pipeline") == first_losses(folder, 1, "replicas") !=
                   first_losses(folder, 2, "pipeline"))
    resolved = read(glob.glob(os.path.join(folder, "runs/seed-1/*/replicas/latest"))[0],
                    "config.resolved.toml")
    program.expect("runs know their scenario", 'scenario = "H2 factor=2 devices=0"' in resolved)
    again = program.run("compare", experiment, "--folder", "cmp")
    program.expect("what is done is kept", again.returncode == 0 and
                   again.stdout.count("kept from before") == 4, again.stdout + again.stderr)
    return experiment


def fails(program):
    broken = EXPERIMENT + '[variants.broken]\n"parallelism.layout" = [1, 1, 1, 1, 1]\n'
    result = program.run("compare", write(program, "broken.toml", broken), "--folder", "cmp")
    program.expect("a run that fails is reported, and the rest is kept",
                   result.returncode == FAULT and result.stdout.count("FAILED") == 2 and
                   result.stdout.count("kept from before") == 4, result.stdout + result.stderr)
    program.expect("the page tells of it", "Failed runs" in
                   read(program.folder, "cmp", "compare.html"))


def tunes(program):
    """Rates of which one does nothing, on a seed of their own; then the others are judged."""
    experiment = write(program, "tuned.toml", EXPERIMENT.replace("target = 5.3", 'target = 5.45\nfolder = "tuned"'))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "tuned_compare.py")
    words = [sys.executable, script, program.skein, experiment, "--rates", "1e-9", "1e-3", "--tuning-seeds", "7"]
    result = subprocess.run([*words, "--seeds", "1", "2"], cwd=program.folder, capture_output=True, text=True, check=False)
    program.expect("rates are tuned", result.returncode == 0 and all(
        f"{name}: optimizer.lr = 0.001; 1e-09: target missed" in result.stdout for name in ("pipeline", "replicas")),
        result.stdout + result.stderr)
    for part, variants, seeds in [("tuning", 4, "7"), ("judged", 2, "12")]:
        rows = list(csv.DictReader(read(program.folder, "tuned", part, "compare.csv").splitlines()))
        program.expect(f"{part} has seeds of its own", len(rows) == variants * len(seeds) and
                       {row["seed"] for row in rows} == set(seeds), str(rows))
    used = glob.glob(os.path.join(program.folder, "tuned/judged/runs/*/*/*/latest/config.resolved.toml"))
    rates = [float(re.search(r"^lr = (\S+)", read(path), re.M).group(1)) for path in used]
    program.expect("what is judged has the tuned rate", rates == 4 * [1e-3], str(rates))
    refused = subprocess.run([*words, "--seeds", "6", "7"], cwd=program.folder, capture_output=True, text=True, check=False)
    program.expect("no seed is tuned on and judged", refused.returncode != 0 and "seeds of their own" in refused.stderr)


def processes_with(word):
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [line for line in lines if word in line]


def stops(program, experiment):
    """Ctrl-C in the first run, which would take minutes; nothing is left behind."""
    folder = os.path.join(program.folder, "stopped")
    words = ["compare", experiment, "--folder", folder, "--device.type", "sleep",
             "--device.sleep_forward_us", "2000000"]
    process = subprocess.Popen([program.skein, *words], cwd=program.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    address = os.path.join(folder, "runs/seed-1/*/pipeline/run-*/coordinator.address")
    deadline = time.monotonic() + LIMIT_SECONDS
    while not glob.glob(address) and time.monotonic() < deadline:
        time.sleep(0.05)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_SECONDS)
    program.expect("Ctrl-C ends the comparison and its run", process.returncode == STOPPED,
                   f"code {process.returncode} after {time.monotonic() - started:.1f} s")
    program.expect("no process of it is left", not processes_with(folder))
    process = subprocess.Popen([program.skein, *words], cwd=program.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(processes_with(folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    while processes_with(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    program.expect("its run dies with it", not processes_with(folder))


def refuses(program):
    def refuse(claim, change, *words):
        text = EXPERIMENT.replace(*change)
        result = program.run("compare", write(program, "bad.toml", text))
        program.expect(claim, result.returncode == USAGE and
                       all(word in result.stderr for word in words), result.stderr.strip())

    refuse("unknown job key", ("training.steps", "training.stepz"), "bad.toml:",
           "did you mean training.steps?")
    refuse("no seeds", ("seeds = [1, 2]", ""), "lacks compare.seeds")
    refuse("no target", ("target = 5.3", ""), "lacks compare.target")
    refuse("unknown scenario", ("H2 factor=2 devices=0", "H8"), "device.scenario", "did you mean")
    refuse("no validation", ('"validation.interval" = 2', ""), "validation.interval")


def main():
    program = Program()
    experiment = compares(program)
    fails(program)
    tunes(program)
    stops(program, experiment)
    refuses(program)
    program.finish()


main()
