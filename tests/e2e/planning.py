#!/usr/bin/env python3
"""What users see of planning: plans, simulations and pictures of the examples, and what is refused."""
import glob
import json
import os
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SMALL_JOB, SOURCE, Program  # noqa: E402

USAGE = 2
EQUAL = os.path.join(SOURCE, "examples", "cluster-equal.toml")
UNEQUAL = os.path.join(SOURCE, "examples", "cluster-unequal.toml")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(program, name, text):
    path = os.path.join(program.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def check_pictures(program, claim, svg, html):
    text = read(svg)
    xml.etree.ElementTree.fromstring(text)
    program.expect(f"{claim}: the SVG is well-formed and has slots", text.count("<title>") >= 2)
    page = read(html)
    for drawing in re.findall(r"<svg.*?</svg>", page, re.S):
        xml.etree.ElementTree.fromstring(drawing)
    outside = page.replace("http://www.w3.org/2000/svg", "")
    program.expect(f"{claim}: the report has drawings and refers to nothing outside",
                   "<svg" in page and not re.search(r"https?:|src=|href=", outside))


def plans(program):
    for cluster in (EQUAL, UNEQUAL):
        name = os.path.basename(cluster)
        result = program.run("plan", SMALL_JOB, cluster, "--show", "--out", "plan.txt", "--csv",
                             "schedule.csv", "--svg", "plan.svg", "--html", "plan.html")
        program.expect(f"{name}: plans", result.returncode == 0, result.stderr.strip())
        words = ["estimated", "tok/s", "bubble", "why", "dapple", "memory", "w1"]
        program.expect(f"{name}: says what and why", all(word in result.stdout for word in words))
        program.expect(f"{name}: no colours where there is no terminal", "\033" not in result.stdout)
        check_pictures(program, name, *(os.path.join(program.folder, f"plan.{kind}")
                                        for kind in ("svg", "html")))
        again = program.run("plan", SMALL_JOB, cluster, "--json")
        plan = json.loads(again.stdout)
        program.expect(f"{name}: the same plan again, as JSON",
                       plan["plan_text"] == read(os.path.join(program.folder, "plan.txt")))
        ours = plan["step_us"]
        others = [p["step_us"] for p in plan["planners"] if "step_us" in p]
        program.expect(f"{name}: no other planner's plan is faster",
                       all(ours <= other * (1 + 1e-9) for other in others), f"{ours}, {others}")


    free = program.run("plan", SMALL_JOB, UNEQUAL, "--json", "--schedules", "1F1B,GPipe,ZBH1",
                       "--microbatch-rows", "8,4,1,2", "--may-recompute")
    program.expect("with more to choose from, the plan is no slower", free.returncode == 0 and
                   json.loads(free.stdout)["step_us"] <= ours * (1 + 1e-9), free.stderr.strip())


def plans_alone(program):
    """Without the others' plans there is ours alone, or the one planner that was named."""
    for planner in ("skein", "dapple"):
        result = program.run("plan", SMALL_JOB, UNEQUAL, "--json", "--planner", planner,
                             "--parallelism.plans_of_others", "false")
        plan = json.loads(result.stdout) if result.returncode == 0 else {}
        program.expect(f"{planner} plans without the others",
                       [each["planner"] for each in plan.get("planners", [])] == [planner] and
                       (planner != "skein" or "not asked" in plan["reason"]), result.stderr.strip())


def any_model(program):
    """A profile of a model that is no transformer, and a cluster: no job is needed."""
    layers = [{"name": f"conv{n}", "forward_us": [3000 / (n + 1)], "backward_us": [6000 / (n + 1)],
               "activation_row_bytes": 4096, "stash_row_bytes": 8192,
               "parameter_bytes": 10000 * (n + 1)} for n in range(11)]
    profile = write(program, "convolutions.json", json.dumps(
        {"format": "skein-profile-1", "source": "measured", "rows": [16], "layers": layers}))
    words = [UNEQUAL, "--profile", profile]
    result = program.run("plan", *words, "--show", "--out", "any.txt", "--html", "any.html", "--svg",
                         "any.svg")
    program.expect("a profile and a cluster can be planned for", result.returncode == 0 and
                   "11 layers" in result.stdout and "samples/s" in result.stdout and
                   "tok" not in result.stdout, result.stderr.strip())
    check_pictures(program, "any model", os.path.join(program.folder, "any.svg"),
                   os.path.join(program.folder, "any.html"))
    batch = ["--batch", "96", "--microbatch-rows", "8,16", "--schedules", "GPipe,ZBH1"]
    plan = json.loads(program.run("plan", *words, *batch, "--json").stdout)
    rows = plan["plan"]["microbatches"] * plan["plan"]["microbatch_rows"]
    program.expect("batch, micro-batches and schedules are flags", rows == 96 and
                   plan["plan"]["schedule"] in ("GPipe", "ZBH1") and
                   abs(plan["samples_per_second"] * plan["step_us"] / 96e6 - 1) < 1e-9 and
                   "tokens_per_second" not in plan, str(plan["plan"])[:120])
    result = program.run("simulate", *words, "--plan", "any.txt", "--steps", "3",
                         "--job.dump_folder", "any", "--log-format", "json")
    last = json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else {}
    program.expect("and simulated, in samples", last.get("samples_per_second", 0) > 0 and
                   not any("tokens" in key for key in last), result.stderr.strip() or str(last))
    runs = os.listdir(os.path.join(program.folder, "any"))
    program.expect("which leaves a run folder that is not the latest",
                   len(runs) == 1 and runs[0].startswith("convolutions-"), str(runs))


def simulates(program):
    result = program.run("simulate", SMALL_JOB, UNEQUAL, "--plan", "plan.txt", "--schedule-csv",
                         "schedule.csv", "--steps", "3", "--job.dump_folder", "runs")
    program.expect("simulates a plan with a schedule from a file", result.returncode == 0,
                   result.stderr.strip())
    runs = sorted(glob.glob(os.path.join(program.folder, "runs", "small-*")))
    run = runs[-1] if runs else program.folder
    files = ["config.resolved.toml", "plan.txt", "plan.json", "metrics.jsonl", "events.jsonl",
             "traces/trace.json", "report.html", "profile.json", "cluster.toml"]
    missing = [name for name in files if not os.path.exists(os.path.join(run, name))]
    program.expect("leaves a run folder", not missing, ", ".join(missing))
    steps = [json.loads(line) for line in read(os.path.join(run, "metrics.jsonl")).splitlines()]
    program.expect("has a line of metrics per step",
                   [s["step"] for s in steps] == [1, 2, 3] and all(s["simulated"] for s in steps))
    events = json.loads(read(os.path.join(run, "traces", "trace.json")))["traceEvents"]
    program.expect("has a trace", any(e["name"].startswith("0F") for e in events))
    same = program.run("plan", SMALL_JOB, os.path.join(run, "cluster.toml"), "--profile",
                       os.path.join(run, "profile.json"), "--html", "m.html", "--measured", run)
    program.expect("its profile and cluster files can be planned with", same.returncode == 0,
                   same.stderr.strip())
    program.expect("a run's measured timeline is put under the planned one",
                   "Predicted against measured" in read(os.path.join(program.folder, "m.html")))
    slow = program.run("simulate", SMALL_JOB, UNEQUAL, "--plan", "plan.txt", "--scenario",
                       "H2 factor=4 devices=0", "--steps", "1", "--job.dump_folder", "runs",
                       "--log-format", "json")
    plain = program.run("simulate", SMALL_JOB, UNEQUAL, "--plan", "plan.txt", "--steps", "1",
                        "--job.dump_folder", "runs", "--log-format", "json")
    rates = [json.loads(r.stdout.splitlines()[-1])["tokens_per_second"] for r in (plain, slow)]
    program.expect("a slowed device slows the run", rates[1] < rates[0], str(rates))


def draws(program):
    # 1F1B of equal stages: (M + S - 1)(F + B), and min(M, S - s) stashes on stage s.
    for stages, microbatches in ((1, 1), (4, 8), (8, 24), (32, 64)):
        result = program.run("simulate", "--stages", str(stages), "--microbatches",
                             str(microbatches), "--tf", "1", "--tb", "2", "--svg", "q.svg",
                             "--html", "q.html", "--csv", "q.csv")
        makespan = 3 * (microbatches + stages - 1)
        peaks = " ".join(str(min(microbatches, stages - s)) for s in range(stages))
        program.expect(f"1F1B of {stages} stages and {microbatches} micro-batches",
                       result.returncode == 0 and re.search(rf"makespan +{makespan}\n", result.stdout)
                       and f"stash peaks  {peaks}\n" in result.stdout, result.stderr.strip())
        check_pictures(program, f"{stages} stages", *(os.path.join(program.folder, f"q.{kind}")
                                                      for kind in ("svg", "html")))
        back = program.run("simulate", "--schedule-csv", "q.csv", "--tf", "1", "--tb", "2")
        program.expect("  and the same from its CSV",
                       re.search(rf"makespan +{makespan}\n", back.stdout), back.stderr.strip())
    for words in (["--virtual", "2", "--schedule", "Interleaved1F1B"],
                  ["--tb", "1", "--tw", "1", "--schedule", "ZBH1"], ["--schedule", "GPipe"]):
        result = program.run("simulate", "--stages", "4", "--microbatches", "8", *words)
        program.expect("draws " + words[-1], result.returncode == 0 and words[-1] in result.stdout,
                       result.stderr.strip())


def refuses(program):
    def refuse(claim, words, *arguments):
        result = program.run(*arguments)
        lines = result.stderr.strip().splitlines()
        program.expect(claim, result.returncode == USAGE and len(lines) == 1 and
                       all(word in lines[0] for word in words),
                       f"code {result.returncode}: {result.stderr.strip()}")

    refuse("missing cluster file", ["no cluster file"], "plan", SMALL_JOB, "none.toml")
    refuse("missing profile", ["no profile"], "plan", SMALL_JOB, EQUAL, "--profile", "none.json")
    typo = write(program, "typo.toml", "[[host]]\nnam = \"a\"\n")
    refuse("unknown key of a cluster", ["typo.toml:2", "did you mean name"], "plan", SMALL_JOB, typo)
    broken = write(program, "broken.json", '{"format": "skein-profile-1",\n "layers": [}\n')
    refuse("no JSON", ["broken.json:2"], "plan", SMALL_JOB, EQUAL, "--profile", broken)
    other = write(program, "other.json", '{"format": "skein-profile-1", "layers": '
                                         '[{"forward_us": 1, "backward_us": 2}]}')
    refuse("profile of another model", ["1 layers", "6"], "plan", SMALL_JOB, EQUAL, "--profile",
           other)
    small = write(program, "small.toml", "[[host]]\nname = \"a\"\nmemory_gb = 0.0001\n")
    refuse("a model that does not fit", ["a"], "plan", SMALL_JOB, small)
    refuse("unknown planner", ["--planner", "did you mean dapple"], "plan", SMALL_JOB, EQUAL,
           "--planner", "daple")
    refuse("unknown schedule", ["--schedules", "1F1B"], "plan", SMALL_JOB, EQUAL, "--schedules", "X")
    refuse("micro-batch that does not divide", ["--microbatch-rows 3"], "plan", SMALL_JOB, EQUAL,
           "--microbatch-rows", "3")
    refuse("a micro-batch of nothing", ["--microbatch-rows 0: expected at least 1"], "plan", EQUAL,
           "--profile", broken, "--microbatch-rows", "0")
    refuse("unknown scenario", ["skein: --scenario: \"H9"], "plan", SMALL_JOB, EQUAL,
           "--scenario", "H9")
    refuse("a job without a cluster", ["cluster file"], "simulate", SMALL_JOB)
    refuse("nothing to simulate", ["--stages"], "simulate")
    refuse("a flag of numbers with files", ["--microbatches, --schedule", "only without files",
                                            "did you mean --schedules"],
           "simulate", SMALL_JOB, UNEQUAL, "--schedule", "GPipe", "--microbatches", "3")
    refuse("a flag of files with numbers", ["--planner, --batch",
                                            "only with a job"],
           "simulate", "--stages", "4", "--microbatches", "8", "--planner", "dapple", "--batch", "3")
    refuse("stages out of range", ["--stages 0"], "simulate", "--stages", "0", "--microbatches", "2")
    csv = write(program, "bad.csv", "0F0,0B0\n1F0,x\n")
    refuse("a cell that is no action", ["bad.csv", "line 2"], "simulate", "--schedule-csv", csv)
    csv = write(program, "dead.csv", "0B0,0F0\n")
    refuse("a schedule that cannot run", ["dead.csv", "0B0"], "simulate", "--schedule-csv", csv)
    refuse("a plan that is none", ["bad.csv"], "simulate", SMALL_JOB, EQUAL, "--plan", "bad.csv")


def main():
    program = Program()
    plans(program)
    plans_alone(program)
    any_model(program)
    simulates(program)
    draws(program)
    refuses(program)
    program.finish()


main()
