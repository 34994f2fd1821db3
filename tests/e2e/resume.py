#!/usr/bin/env python3
"""A checkpoint of three stages goes on in one, two and four as if there had been no stop."""
import json
import os
import shutil
import sqlite3
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import (expected_shapes, newest, read_index, read_model, same_bits,  # noqa: E402
                         worst_relative)
from running import Program  # noqa: E402

TOLERANCE = 1e-5


def losses(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return {row["step"]: row["loss"] for row in map(json.loads, file) if row["kind"] == "step"}


def main():
    program = Program()
    three = ["--parallelism.pipeline_parallel_degree", "3"]
    # The learning rate depends on the job's length: both halves say 20 steps, the first one is
    # stopped by its checkpoint of step 10.
    _, whole = program.train("whole", *three, "--checkpoint.interval", "10")
    ten = os.path.join(whole, "checkpoint", "step-00000010")
    with open(os.path.join(ten, "config.json"), encoding="utf-8") as file:
        shapes = expected_shapes(json.load(file))
    tensors = read_model(ten)
    program.expect("numpy and json alone read every tensor by its Hugging Face name and shape",
                   {name: array.shape for name, array in tensors.items()} == shapes,
                   f"{len(tensors)} tensors")
    moments = read_index(ten, "optimizer.safetensors.index.json")
    program.expect("the optimizer's state is beside them", len(moments) == 2 * len(tensors))
    expected = losses(whole)
    for stages in ("1", "2", "3", "4"):
        result, run = program.train(f"from-{stages}", "--parallelism.pipeline_parallel_degree",
                                    stages, "--checkpoint.initial_load_path", ten)
        if result.returncode != 0:
            program.expect(f"{stages} stages go on", False, result.stderr.strip())
            continue
        ours = losses(run)
        program.expect(f"{stages} stages: the next step is the same as without the stop",
                       abs(ours[11] - expected[11]) <= 1e-6 and min(ours) == 11,
                       f"{ours[11]:.7f} and {expected[11]:.7f}")
        worst, name = worst_relative(read_model(newest(run)), read_model(newest(whole)))
        program.expect(f"{stages} stages: the end is the same", worst <= TOLERANCE,
                       f"{worst:.1e} {name}")
        if stages == "3":
            program.expect("the same layout gives the same bits",
                           same_bits(read_model(newest(run)), read_model(newest(whole))))
    # In place: the run folder goes on.
    result, run = program.train("place", *three, "--training.steps", "10")
    again = program.run("train", "--resume", run, "--training.steps", "14")
    program.expect("--resume goes on in the same folder",
                   again.returncode == 0 and max(losses(run)) == 14, again.stderr.strip())
    _, bare = program.train("bare", "--checkpoint.no-enable", "--training.steps", "6")
    for folder, words in ((run, "already has 14 steps"), (bare, "6 steps of this run are committed")):
        fewer = program.run("train", "--resume", folder, "--training.steps", "3")
        program.expect("fewer steps than there are already are refused", fewer.returncode == 2 and
                       words in fewer.stderr, fewer.stderr.strip())
    done = program.run("train", "--resume", run)
    program.expect("a finished run is not run again", done.returncode == 2, done.stderr.strip())
    resume_latest(program)
    resume_copies(program, run)
    program.finish()


def resume_copies(program, run):
    """Copies that have lost their links, or have other things in their files, of a run of 14 steps with
    checkpoints of steps 10 and 14."""
    def copy(name):
        made = os.path.join(program.folder, name)
        shutil.copytree(run, made, symlinks=True)
        return made, os.path.join(made, "checkpoint", "latest")

    def resume(folder):
        return program.run("train", "--resume", folder, "--training.steps", "16")

    for what, link in (("no link", None), ("a dangling link", "step-99999999")):
        folder, latest = copy("linkless" if link is None else "dangling")
        os.remove(latest)
        if link:
            os.symlink(link, latest)
        result = resume(folder)
        steps = [step for step in losses(folder) if step > 14]
        program.expect(f"a copy with {what} to its newest checkpoint goes on from it",
                       result.returncode == 0 and steps == [15, 16] and
                       "starts at step 15" in result.stdout, result.stdout[-300:])
    folder, latest = copy("followed")
    whole = os.path.realpath(latest)
    os.remove(latest)
    shutil.copytree(whole, latest)
    result = resume(folder)
    program.expect("a folder where the link should be is refused by name",
                   result.returncode == 2 and latest in result.stderr, result.stderr.strip())
    for change in ("UPDATE commits SET generation = 9223372036854775807",
                   "UPDATE commits SET step = -1 WHERE step = 13", "UPDATE plans SET plan = 'rubbish'",
                   "UPDATE plans SET generation = 9223372036854775807 WHERE generation = "
                   "(SELECT MAX(generation) FROM plans)"):
        folder, _ = copy(f"journal-{len(os.listdir(program.folder))}")
        journal = os.path.join(folder, "journal.sqlite")
        with sqlite3.connect(journal) as database:
            database.execute(change)
        database.close()
        result = resume(folder)
        program.expect(f"a journal with what was never written is refused by name: {change}",
                       result.returncode == 3 and journal in result.stderr, result.stderr.strip())
    folder, _ = copy("nameless")
    with open(os.path.join(folder, "run.id"), "wb") as file:
        file.write(bytes(range(128, 228)))
    result = resume(folder)
    program.expect("a run.id that is none is refused by name",
                   result.returncode == 1 and "run.id" in result.stderr, result.stderr.strip())
    with open(os.path.join(run, "run.id")) as file:
        own = file.read()
    with open(os.path.join(folder, "run.id"), "w") as file:
        file.write("another-run\n")
    result = resume(folder)
    program.expect("checkpoints of another run are refused by name",
                   result.returncode == 2 and f"is of run {own.strip()}, and this is another-run" in
                   result.stderr, result.stderr.strip())
    os.remove(os.path.join(folder, "run.id"))
    result = resume(folder)
    with open(os.path.join(folder, "run.id")) as file:
        program.expect("a run that has lost its run.id has that of its checkpoints",
                       result.returncode == 0 and file.read() == own, result.stderr.strip())


def resume_latest(program):
    """--resume-latest starts, goes on, or finds nothing to do: the same words are always right."""
    words = ["--resume-latest", "--parallelism.pipeline_parallel_degree", "2"]
    first, run = program.train("latest", *words, "--training.steps", "6")
    program.expect("--resume-latest starts where there is no run",
                   first.returncode == 0 and max(losses(run)) == 6, first.stderr.strip())
    program.train("latest", *words, "--training.steps", "9")
    program.expect("it goes on in the latest run", max(losses(run)) == 9)
    os.unlink(os.path.join(os.path.dirname(run), "latest"))
    done, last = program.train("latest", *words, "--training.steps", "9")
    program.expect("it ends well when nothing is left to do, also without its link",
                   done.returncode == 0 and "nothing to do" in done.stdout and last == run,
                   done.stdout.strip())
    other, last = program.train("latest", *words, "--training.steps", "6", "--job.name", "other")
    program.expect("another job's run is not gone on with",
                   other.returncode == 0 and last != run and max(losses(last)) == 6)
    both = program.run("train", "job.toml", "--resume", run, "--resume-latest")
    program.expect("--resume and --resume-latest are not for one command", both.returncode == 2)


main()
