#!/usr/bin/env python3
"""Training begins with the weights of a folder in Hugging Face's form, of a Llama whose heads share keys, on other
data and in another layout; a worker is killed on the way, and the run is resumed when the folder is gone."""
import glob
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import ElasticRun, read_lines  # noqa: E402
from running import Program, SMALL_JOB, SOURCE  # noqa: E402

BAD_CONFIG, BAD_DATA = 2, 3
TOLERANCE = 1e-4
MODEL = ["--model.name", "llama", "--model.num_key_value_heads", "2", "--model.rope_type", "llama3", "--model.rope_factor",
         "4", "--model.rope_original_max_position_embeddings", "16"]
OTHER_TEXT = ["--data.path", os.path.join(SOURCE, "LICENSE"), "--checkpoint.keep_latest_k", "0"]


def loss_of_first_step(run):
    lines = read_lines(os.path.join(run, "metrics.jsonl"))
    return next(line["loss"] for line in lines if line["kind"] == "step")


def make_folder(program):
    """What others would bring: config.json and weights, and nothing of the run that made them."""
    _, run = program.train("base", *MODEL)
    folder = os.path.join(program.folder, "pretrained")
    os.makedirs(folder)
    for name in os.listdir(newest(run)):
        if name == "config.json" or name.startswith("model"):
            shutil.copy(os.path.join(newest(run), name), folder)
    return run, folder


def read_state(checkpoint):
    with open(os.path.join(checkpoint, "trainer_state.json"), encoding="utf-8") as file:
        return json.load(file)


def every_key(program, but, value):
    result = program.run("config", "show", SMALL_JOB, *MODEL)
    lines = result.stdout[result.stdout.index("[model]"):].split("\n\n")[0].splitlines()[1:]
    keys = dict(line.split("#")[0].strip().split(" = ") for line in lines)
    keys = {"model." + name: text.strip('"') for name, text in keys.items()}
    keys.update({but: value})
    del keys["model.from"]
    return [word for name, text in keys.items() for word in ("--" + name, text)]


def change(path, old, new):
    """Replaces a piece of a file, which may have numbers behind its text."""
    with open(path, "rb") as file:
        contents = file.read()
    with open(path, "wb") as file:
        file.write(contents.replace(old, new, 1))


def check_broken(program, folder):
    """Whatever is wrong with a folder is one line that names it, and no run begins."""
    shard = next(name for name in sorted(os.listdir(folder)) if name.endswith(".safetensors"))
    for what, code, words, breaks in (
            ("a shard that is missing", BAD_DATA, [shard, "is not there"],
             lambda broken: os.remove(os.path.join(broken, shard))),
            ("a shard that is cut", BAD_DATA, [shard, "truncated"],
             lambda broken: os.truncate(os.path.join(broken, shard),
                                        os.path.getsize(os.path.join(broken, shard)) - 4)),
            ("a tensor of another shape", BAD_CONFIG, ["has shape", "by config.json it is [7, 64]"],
             lambda broken: change(os.path.join(broken, "config.json"), b'"intermediate_size": ',
                                   b'"intermediate_size": 7, "was": ')),
            ("another architecture", BAD_CONFIG, ["config.json", "model_type mamba"],
             lambda broken: change(os.path.join(broken, "config.json"), b'"model_type": "llama"',
                                   b'"model_type": "mamba"')),
            ("a tensor of a type that is not read", BAD_CONFIG, [shard, "no type that is read"],
             lambda broken: change(os.path.join(broken, shard), b'"F32"', b'"I32"')),
            ("a tokenizer that is cut", BAD_DATA, ["tokenizer.json"],
             lambda broken: program.write("broken/tokenizer.json", '{"model": {"type": "BP'))):
        broken = shutil.copytree(folder, os.path.join(program.folder, "broken"))
        breaks(broken)
        result, run = program.train("refused", "--model.from", broken)
        program.expect_refusal(f"{what} is refused", code, words, result)
        program.expect(f"{what}: nothing is written", run is None, run)
        shutil.rmtree(broken)


def check_refusals(program, folder):
    for what, words, says in (
            ("another model", ["--model.from", folder, "--model.n_head", "2"], "--model.n_head = 2: it is 4"),
            ("another number of key heads", ["--model.from", folder, "--model.num_key_value_heads", "4"],
             "--model.num_key_value_heads = 4: it is 2"),
            ("a folder that is not there", ["--model.from", "nowhere"], "config.json is not there"),
            ("a flavor beside it", ["--model.from", folder, "--model.flavor", "gpt2"], "leave it out"),
            ("a run beside it", ["--model.from", folder, "--checkpoint.initial_load_path", folder],
             "give one of them"),
            # All keys of [model], as in a copy of a run's own file.
            ("a whole job of another model", ["--model.from", folder, *every_key(program, "model.n_head", "2")],
             "another one than that of")):
        result, run = program.train("refused", *words)
        program.expect(f"{what} is refused in a line", result.returncode == BAD_CONFIG and says in result.stderr,
                       result.stderr[-300:])
        program.expect(f"{what}: nothing is written", run is None, run)


def main():
    program = Program()
    base, folder = make_folder(program)
    brought = read_model(folder)
    check_refusals(program, folder)
    check_broken(program, folder)
    words = ["--model.from", folder, *OTHER_TEXT]
    result, alone = program.train("alone", *words)
    program.expect("one worker trains on", result.returncode == 0, result.stderr[-300:])
    begun = read_model(os.path.join(alone, "checkpoint", "step-00000000"))
    program.expect("from the same bits", begun.keys() == brought.keys() and
                   all((begun[name] == brought[name]).all() for name in brought))

    result, again = program.train("again", "--model.from", base, *OTHER_TEXT, "--training.steps", "1")
    program.expect("a run's folder stands for its newest checkpoint", result.returncode == 0 and
                   newest(base) in result.stderr, result.stderr[-300:])
    begun = read_model(os.path.join(again, "checkpoint", "step-00000000"))
    program.expect("with the same bits", all((begun[name] == brought[name]).all() for name in brought))

    digests = {said["from_digest"] for said in map(read_state, glob.glob(os.path.join(alone, "checkpoint", "step-*")))}
    program.expect("each checkpoint knows with which weights the run began", len(digests) == 1 and "" not in digests,
                   digests)
    program.expect("which are the same in a run's files", read_state(newest(again))["from_digest"] in digests)
    program.expect("verify says so", next(iter(digests)) in program.run("verify", alone).stdout)

    _, fresh = program.train("fresh", *MODEL, *OTHER_TEXT)
    losses = [loss_of_first_step(run) for run in (alone, fresh)]
    program.expect("which know something of another text", losses[0] < losses[1] - 1, losses)

    prompt = ["--ids", "--prompt", " ".join(["84"] * 50), "--tokens", "1"]
    program.expect("they know more positions than the samples here have",
                   "the prompt" not in program.run("generate", alone, *prompt).stderr)
    program.expect("fresh ones do not, which is said", "the prompt has 50 tokens" in
                   program.run("generate", fresh, *prompt).stderr)

    run = ElasticRun(program, "pipeline", 3, *words, "--parallelism.pipeline_parallel_degree", "3",
                     "--device.speed", "0.1")
    run.wait_for_step(6)
    run.signal(1)
    code = run.finish()
    program.expect("a pipeline of three that loses one ends", code == 0, run.errors()[-300:])
    worst, tensor = worst_relative(read_model(newest(run.folder())), read_model(newest(alone)))
    program.expect("with the weights of one worker", worst <= TOLERANCE, f"{worst:.1e} {tensor}")

    shutil.rmtree(folder)
    result = program.run("train", "--resume", alone, "--training.steps", "24")
    program.expect("a run goes on without the folder", result.returncode == 0, result.stderr[-300:])
    program.expect("and still knows with which weights it began", read_state(newest(alone))["from_digest"] in digests)
    result = program.run("train", SMALL_JOB, *words, "--job.dump_folder", "alone", "--resume-latest")
    program.expect("and is found without it", "nothing to do" in result.stdout, result.stdout + result.stderr[-300:])
    shutil.rmtree(os.path.join(alone, "checkpoint"))
    result = program.run("train", "--resume", alone, "--training.steps", "30")
    program.expect("and not begun with others", result.returncode == BAD_DATA and "not even" in result.stderr,
                   result.stderr[-300:])
    program.finish()


main()
