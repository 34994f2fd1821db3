#!/usr/bin/env python3
"""Measures, plans and trains: what `auto` finds is run, and what `profile` writes is planned with."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from running import SMALL_JOB, Program  # noqa: E402

TOLERANCE = 1e-5
SLEEP = ["--device.type", "sleep", "--device.sleep_forward_us", "1000",
         "--device.sleep_backward_us", "2000"]
AUTO = ["--parallelism.pipeline_parallel_degree", "auto", "--workers", "3"]


def main():
    program = Program()
    # On devices that compute, the planner's choice gives the weights of one process.
    reference = read_model(newest(program.run_reference("reference", "--training.steps", "6") +
                                  "/final"))
    result, run = program.train("auto", *AUTO, "--training.steps", "6")
    program.expect("auto trains", result.returncode == 0, result.stderr.strip())
    worst, tensor = worst_relative(read_model(newest(run)), reference)
    program.expect("auto agrees with one process", worst <= TOLERANCE, f"{worst:.1e} {tensor}")
    summary = [line for line in result.stdout.splitlines() if "predicted" in line]
    program.expect("the summary compares prediction and reality", len(summary) == 1, summary)
    for name in ("profile.json", "cluster.toml", "plan.txt", "report.html"):
        program.expect(f"the run leaves {name}", os.path.exists(os.path.join(run, name)))

    # Unequal devices are measured as such, and get unequal work.
    words = [*SLEEP, "--device.speeds", "1,0.5,0.25"]
    result = program.run("profile", SMALL_JOB, "--workers", "3", *words)
    program.expect("profile measures", result.returncode == 0, result.stderr.strip())
    with open(os.path.join(program.folder, "profile.json"), encoding="utf-8") as file:
        profile = json.load(file)
    program.expect("every layer was measured", profile["source"] == "measured" and
                   len(profile["layers"]) == 6)
    result = program.run("plan", SMALL_JOB, "cluster.toml", "--profile", "profile.json", "--json")
    program.expect("its files are planned with", result.returncode == 0, result.stderr.strip())
    result, run = program.train("uneven", *AUTO, *words, "--checkpoint.no-enable",
                                "--training.steps", "3")
    with open(os.path.join(run, "cluster.toml"), encoding="utf-8") as file:
        speeds = [float(line.split("=")[1]) for line in file if line.strip().startswith("speed")]
    program.expect("speeds are those of the devices", result.returncode == 0 and
                   len(speeds) == 3 and all(abs(speed / expected - 1) < 0.2 for speed, expected
                                            in zip(speeds, (1, 0.5, 0.25))), speeds)
    result, _ = program.train("stuck", *AUTO, "--training.steps", "1", "--device.speeds", "1,2")
    program.expect("a speed above 1 is refused", result.returncode == 2 and
                   "device.speeds" in result.stderr, result.stderr.strip())
    program.finish()


main()
