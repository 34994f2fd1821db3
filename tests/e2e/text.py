#!/usr/bin/env python3
"""What a trained model is used for: text is drawn from it, and its predictions are judged."""
import json
import math
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SOURCE, Program  # noqa: E402

USAGE, BAD_DATA = 2, 3
# All windows of what small_job.toml holds out: 54 of 32 tokens.
ALL_WINDOWS = ["--validation.batches", "27", "--training.micro_batch_size", "2"]


def refused(program, claim, code, words, *command):
    result = program.run(*command)
    lines = result.stderr.strip().splitlines()
    program.expect(claim, result.returncode == code and len(lines) == 1 and
                   all(word in lines[0] for word in words), result.stderr.strip())


def generation(program, run):
    words = ["generate", run, "--prompt", "The licenses", "--tokens", "120"]
    greedy = program.run(*words, "--temperature", "0")
    without = program.run(*words, "--temperature", "0", "--no-cache")
    program.expect("greedy text is the same without the cache, past the window as well",
                   greedy.returncode == 0 and greedy.stdout == without.stdout and
                   greedy.stdout.startswith("The licenses"), greedy.stderr.strip())
    narrow = program.run(*words, "--top-p", "1e-6")
    program.expect("of a tiny top-p only the likeliest is left", narrow.stdout == greedy.stdout)
    text = greedy.stdout.removeprefix("The licenses")
    with open(os.path.join(run, "generation_config.json"), "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": [255, ord(text[9])]}, file)
    stopped = program.run(*words, "--temperature", "0")
    expected = text[:text.index(text[9])]
    program.expect("text ends before the end token", stopped.stdout == f"The licenses{expected}\n",
                   repr(stopped.stdout))
    going = program.run(*words, "--temperature", "0", "--ignore-eos")
    program.expect("--ignore-eos goes on", going.stdout == greedy.stdout)
    with open(os.path.join(run, "generation_config.json"), "w", encoding="utf-8") as file:
        file.write('{"eos_token_id": "end"}')
    refused(program, "an end token that is no number is named", BAD_DATA,
            ["generation_config.json", "eos_token_id"], *words)
    os.remove(os.path.join(run, "generation_config.json"))
    refused(program, "a top-p of 0 is refused", USAGE, ["--top-p"], *words, "--top-p", "0")


def evaluation(program, run, folder, loss):
    result = json.loads(program.run("eval", run, "--json").stdout or "{}")
    program.expect("eval finds the loss of the run's validation",
                   abs(result.get("loss", 0) - loss) < 1e-5, f"{result.get('loss')} {loss}")
    program.expect("perplexity and bits per byte follow from it",
                   result["tokens"] == 54 * 32 and
                   math.isclose(result["perplexity"], math.exp(result["loss"])) and
                   math.isclose(result["bits_per_byte"], result["loss"] / math.log(2)))
    odd = json.loads(program.run("eval", run, "--json", "--batch", "5", "--threads", "2").stdout)
    program.expect("a batch that does not divide the windows changes nothing",
                   odd["tokens"] == 54 * 32 and abs(odd["loss"] - loss) < 1e-5)
    with open(os.path.join(program.folder, "a.txt"), "w", encoding="utf-8") as file:
        file.write("a" * 65)
    two = program.run("eval", folder, "--data.dataset", "text", "--data.path", "a.txt")
    program.expect("a file that is named is looked at as a whole", "2 windows" in two.stdout,
                   two.stdout + two.stderr)
    refused(program, "a file that is not there is named", BAD_DATA, ["nope"], "eval", run,
            "--data.path", "nope")
    refused(program, "too long windows are refused", USAGE, ["64 positions"], "eval", run,
            "--seq-len", "65")
    refused(program, "other keys than those of data are refused", USAGE, ["--training.steps"],
            "eval", run, "--training.steps", "3")


def export(program, folder, words):
    """The model alone says what the checkpoint does."""
    spoken = program.run(*words).stdout
    for out, more in (("one", []), ("several", ["--shard-mb", "1"])):
        result = program.run("export", folder, out, *more)
        files = sorted(os.listdir(os.path.join(program.folder, out)))
        weights = [name for name in files if name.endswith(".safetensors")]
        program.expect(f"export into {out} file(s)", result.returncode == 0 and
                       (weights == ["model.safetensors"]) == (out == "one") and
                       {"config.json", "tokenizer.json", "generation_config.json"} <= set(files),
                       str(files) + result.stderr.strip())
        again = program.run("generate", out, *words[2:])
        program.expect(f"the model in {out} file(s) speaks as the checkpoint",
                       again.stdout == spoken != "", again.stderr.strip())
    refused(program, "what is there is not overwritten", USAGE, ["one", "there already"], "export",
            folder, "one")


def tokenized(program):
    """A tokenizer beside the data goes into the checkpoint, and what is drawn is text."""
    with open(os.path.join(SOURCE, "tests/golden/text/tokenizers.json"), encoding="utf-8") as file:
        golden = json.load(file)
    data = os.path.join(program.folder, "data")
    os.mkdir(data)
    files = {"tokenizer.json": golden["base"], "tokenizer_config.json": {"model_max_length": 64},
             "generation_config.json": {"eos_token_id": 0}}
    for name, contents in files.items():
        with open(os.path.join(data, name), "w", encoding="utf-8") as file:
            json.dump(contents, file)
    at = golden["texts"].index(" the geese fly")
    geese = golden["expected"]["gpt2"][at]
    with open(os.path.join(data, "train.bin"), "wb") as file:
        file.write(struct.pack(f"<{len(geese) * 600}H", *geese * 600))
    trained, run = program.train("spoken", "--data.dataset", "tokens", "--data.path",
                                 os.path.join(data, "train.bin"), "--model.vocab_size", "328",
                                 "--model.n_embd", "96",
                                 "--training.steps", "30", "--optimizer.lr", "1e-2")
    program.expect("a run on tokens is trained", trained.returncode == 0, trained.stderr.strip())
    folder = os.path.join(run, "checkpoint", "step-00000030")
    for name, contents in files.items():
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            program.expect(f"the checkpoint has {name}", json.load(file) == contents)
    words = ["generate", run, "--prompt", " the", "--tokens", "20", "--temperature", "0"]
    spoken = program.run(*words)
    program.expect("the model speaks text", spoken.returncode == 0 and
                   spoken.stdout.startswith(" the ") and
                   set(spoken.stdout) <= set(" the geese fly\n") and len(spoken.stdout) > 24,
                   repr(spoken.stdout) + spoken.stderr.strip())
    numbers = program.run("generate", run, "--ids", "--prompt", " ".join(map(str, geese)),
                          "--tokens", "2", "--temperature", "0")
    program.expect("--ids speaks in numbers", len(numbers.stdout.split()) == 2 and
                   set(map(int, numbers.stdout.split())) <= set(geese),
                   numbers.stdout + numbers.stderr)
    judged = json.loads(program.run("eval", run, "--json").stdout)
    per_token = len(" the geese fly") / len(geese)
    program.expect("eval knows the bytes of tokens",
                   abs(judged["bytes"] / judged["tokens"] - per_token) < 0.1 * per_token,
                   str(judged["bytes"] / judged["tokens"]))
    export(program, folder, words)
    whole = program.run("verify", folder)
    with open(os.path.join(folder, "tokenizer.json"), "a", encoding="utf-8") as file:
        file.write(" ")
    damaged = program.run("verify", folder)
    program.expect("a tokenizer that was changed is found", whole.returncode == 0 and
                   damaged.returncode == BAD_DATA and "tokenizer.json" in damaged.stdout,
                   damaged.stdout.strip())
    weights = os.path.join(program.folder, "weights")
    os.rename(folder, weights)
    os.remove(os.path.join(weights, "COMPLETE"))
    with open(os.path.join(weights, "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write('{"model": {"type": "Unigram"}}')
    refused(program, "another kind of tokenizer is named, with a way on", USAGE,
            ["tokenizer.json", "Unigram", "--ids"], "generate", weights)
    with open(os.path.join(weights, "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write('{"model": {"type": "BP')
    refused(program, "a tokenizer that is cut is named", BAD_DATA, ["tokenizer.json"], "generate",
            weights)


def main():
    program = Program()
    trained, run = program.train("used", "--training.steps", "20", *ALL_WINDOWS)
    program.expect("a run is trained", trained.returncode == 0, trained.stderr.strip())
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        losses = [row["loss"] for row in map(json.loads, file) if row["kind"] == "validation"]
    folder = os.path.join(run, "checkpoint", "step-00000020")
    generation(program, folder)
    evaluation(program, run, folder, losses[-1])
    tokenized(program)
    program.finish()


main()
