#!/usr/bin/env python3
"""Members that come and go as a spot market was recorded, simulated and for real.

  spot_market.py SKEIN
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun  # noqa: E402
from running import SMALL_JOB, SOURCE, Program  # noqa: E402

STEPS = 60
RECORDED = os.path.join(SOURCE, "bench", "spot", "g4dn-trace.csv")
# Two machines, both gone for two seconds, then another one.
TRACE = """# A recording, in milliseconds.
60000,add,a
60000,add,b
90000,remove,a
120000,remove,b
240000,add,c
900000,remove,c
"""


def simulate(program):
    """Prints a table that is marked as simulated, and writes the script; returns the script."""
    trace = os.path.join(program.folder, "trace.csv")
    cluster = os.path.join(program.folder, "cluster.toml")
    script = os.path.join(program.folder, "chaos.txt")
    with open(trace, "w", encoding="utf-8") as file:
        file.write(TRACE)
    with open(cluster, "w", encoding="utf-8") as file:
        file.write('[[host]]\nname = "lab"\ndevices = 2\n')
    words = ["simulate", SMALL_JOB, cluster, "--churn", trace, "--churn-scale", "60"]
    result = program.run(*words, "--churn-chaos", script, "--churn-templates", "2")
    program.expect("a recorded market is simulated", result.returncode == 0, result.stderr)
    program.expect("and says so", result.stdout.startswith("simulated: every machine of trace.csv"),
                   result.stdout[:80])
    for way in ("ideal by capacity", "skein", "stop and restart", "whole pipelines of 2"):
        program.expect(f"the table has {way}", f"\n{way} " in result.stdout, result.stdout)
    with open(script, encoding="utf-8") as file:
        text = file.read().strip()
    program.expect("its script is that of the recording",
                   text == "w1:kill@0.5s;w2:kill@1s;another:join@3s", text)
    again = program.run(*words, "--churn-notice", "18", "--log-format", "json")
    chaos = json.loads(again.stdout)["chaos"]
    program.expect("with notices in time", chaos.startswith("w1:term@0.2s;w1:kill@0.5s;"), chaos)
    with open(trace, "a", encoding="utf-8") as file:
        file.write("900001,remove,c\n")
    broken = program.run(*words)
    program.expect("a broken recording is refused by line", broken.returncode == 2 and
                   "trace.csv: line 8: c goes and is not there" in broken.stderr, broken.stderr)
    recorded = program.run(*words[:3], "--churn", RECORDED, "--churn-scale", "60",
                           "--log-format", "json")
    result = json.loads(recorded.stdout)
    program.expect("what Bamboo recorded is simulated with two devices",
                   result["every"] == 14 and result["joins"] == 5, recorded.stdout[:200])
    program.expect("nobody is better than the ideal",
                   all(each["samples"] < result["ideal_samples"] for each in result["ways"]))
    return text


def play(program, script):
    """All workers are gone for a while, and the run goes on with the next one."""
    run = ElasticRun(program, "market", 2, "--chaos", script, "--training.steps", str(STEPS),
                     "--device.speed", "0.1", "--checkpoint.interval", "5")
    try:
        code = run.finish()
        program.expect("a run whose workers are all gone waits for the next one", code == 0,
                       run.errors()[-300:])
        program.expect("it was paused meanwhile", len(run.events("run.paused")) > 0)
        complaints = run.complaints_about_journal(STEPS)
        program.expect("each step counts once", not complaints, str(complaints))
        program.expect("nobody is left", not run.orphans())
    finally:
        run.end()


def main():
    program = Program()
    play(program, simulate(program))
    program.finish()


main()
