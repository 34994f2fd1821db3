#!/usr/bin/env python3
"""skein-metrics hands each number of a run's metrics to a library, here one that writes down what it
is given."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SOURCE, Program  # noqa: E402

TOOL = os.path.join(SOURCE, "tools", "skein-metrics")
USAGE, BAD_DATA = 2, 3
LIBRARY = '''
import json


class SummaryWriter:
    def __init__(self, folder):
        self.file = open(folder, "w", encoding="utf-8")

    def add_scalar(self, name, value, step):
        self.file.write(json.dumps([name, value, step]) + "\\n")

    def close(self):
        self.file.close()
'''

OTHER_LIBRARY = '''
import json


class Run:
    def __init__(self, **given):
        self.calls = [["init", given]]

    def define_metric(self, name, step_metric):
        self.calls.append(["define_metric", [name, step_metric]])

    def log(self, values):
        self.calls.append(["log", values])

    def finish(self):
        with open("calls", "w", encoding="utf-8") as file:
            json.dump(self.calls, file)


def init(project, name):
    return Run(project=project, name=name)
'''


def show(program, *words, modules=""):
    environment = {**os.environ, "PYTHONPATH": os.path.join(program.folder, modules)}
    return subprocess.run(["/usr/bin/python3", TOOL, *words], cwd=program.folder, text=True,
                          capture_output=True, check=False, timeout=60, env=environment)


def refused(program, claim, code, words, *command, modules="library"):
    result = show(program, *command, modules=modules)
    program.expect_refusal(claim, code, words, result)


def wandb(program, run, rows):
    """Weights & Biases counts calls as steps, so a row's own step goes along as a number."""
    shown = show(program, run, "--wandb", "geese", modules="library")
    program.expect("a run is shown by the other library", shown.returncode == 0, shown.stderr.strip())
    with open(os.path.join(program.folder, "calls"), encoding="utf-8") as file:
        first, second, *calls = json.load(file)
    program.expect("under the name of its folder", first ==
                   ["init", {"project": "geese", "name": os.path.basename(run)}], str(first))
    program.expect("with steps as they are in the rows", second == ["define_metric", ["*", "at_step"]], str(second))
    logged = [values for name, values in calls if name == "log"]
    expected = [(row["step"], row["loss"]) for row in rows if row["kind"] == "step"]
    program.expect("each step has its loss", expected ==
                   [(values["at_step"], values["step/loss"]) for values in logged if "step/loss" in values],
                   str(logged)[:300])
    refused(program, "without it, it says what to install", USAGE, ["pip install wandb"], run, "--wandb", "geese",
            modules="without")


def main():
    program = Program()
    program.write("library/tensorboardX.py", LIBRARY)
    program.write("library/wandb.py", OTHER_LIBRARY)
    for name in ("tensorboardX", "wandb"):
        program.write(f"without/{name}.py", "raise ImportError('it is not there')\n")
    trained, run = program.train("run", "--training.steps", "2")
    program.expect("a run is trained", trained.returncode == 0, trained.stderr.strip())
    with open(os.path.join(run, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.write('{"kind": "step", "step": 3, "lo')  # It is being written.
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.endswith("\n")]
    shown = show(program, run, "--tensorboard", "curves", modules="library")
    program.expect("a run is shown", shown.returncode == 0, shown.stderr.strip())
    with open(os.path.join(program.folder, "curves"), encoding="utf-8") as file:
        points = [json.loads(line) for line in file]
    for row in rows:
        if row["kind"] in ("step", "validation"):
            name = f"{row['kind']}/loss"
            program.expect(f"{name} of step {row['step']} is a point",
                           points.count([name, row["loss"], row["step"]]) == 1)
    program.expect("a point is a number of a step that is whole", points and
                   all(isinstance(value, (int, float)) and step in (1, 2)
                       for _, value, step in points), str({step for _, _, step in points}))
    wandb(program, run, rows)
    refused(program, "a folder that is no run's is named", BAD_DATA, ["nope"], "nope",
            "--tensorboard", "curves")
    refused(program, "without the library it says what to install", USAGE,
            ["pip install tensorboardX"], run, "--tensorboard", "curves", modules="without")
    program.write("damaged/metrics.jsonl", "no JSON\n")
    refused(program, "a file of damaged rows is named", BAD_DATA, ["damaged/metrics.jsonl:1"], "damaged",
            "--tensorboard", "curves")
    whole = '{"kind": "step", "step": %d, "loss": 1.5}\n'
    program.write("torn/metrics.jsonl", whole % 1 + '{"kind": "step", "st\n' + whole % 3)
    shown = show(program, "torn", "--tensorboard", "torn-curves", modules="library")
    program.expect("a damaged row is left out and said", shown.returncode == 0 and shown.stdout == "2 rows\n" and
                   "torn/metrics.jsonl:2: " in shown.stderr and shown.stderr.count("\n") == 1, shown.stderr.strip())
    program.finish()


main()
