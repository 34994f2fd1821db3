#!/usr/bin/env python3
"""What a trained model is used for: text is drawn from it, and its predictions are judged."""
import json
import math
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SOURCE, Program  # noqa: E402

TROUBLE, USAGE, BAD_DATA = 1, 2, 3
# All windows of what small_job.toml holds out: 54 of 32 tokens.
ALL_WINDOWS = ["--validation.batches", "27", "--training.micro_batch_size", "2"]


def refused(program, claim, code, words, *command):
    result = program.run(*command)
    program.expect_refusal(claim, code, words, result)


def generation(program, run):
    words = ["generate", run, "--prompt", "The licenses", "--tokens", "120"]
    greedy = program.run(*words, "--temperature", "0")
    program.expect("text goes on from the prompt, past the window as well",
                   greedy.returncode == 0 and greedy.stdout.startswith("The licenses") and
                   len(greedy.stdout) > 64, greedy.stderr.strip())
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
    refused(program, "more tokens than anybody reads are refused", USAGE, ["--tokens", "10000000"],
            "generate", run, "--tokens", str(2**63 - 1))


def on_devices(program, run):
    """The same text wherever the layers are; GPUs are emulated, if there is a plugin."""
    words = ["generate", run, "--ids", "--prompt", "84 104 101", "--tokens", "90",
             "--temperature", "0"]
    one = program.run(*words)
    program.expect("the model says something else behind every context",
                   len(set(one.stdout.split())) > 10, one.stdout)
    for count in (2, 3, 4):
        several = program.run(*words, "--devices", ",".join(["cpu"] * count))
        program.expect(f"{count} devices draw the text of one and say which layers they have",
                       several.stdout == one.stdout and
                       several.stderr.startswith("skein: layers 0") and
                       several.stderr.count("on cpu x1") == count, several.stderr.strip())
    refused(program, "a device that is none is named", USAGE, ["--devices", "gpu"], *words,
            "--devices", "cpu,gpu")
    absent = dict(os.environ, SKEIN_CUDA_PLUGIN="/nowhere/libskein_cuda.so")
    auto = program.run(*words, "--devices", "auto", env=absent)
    program.expect("auto without a GPU takes the processor and says why", auto.stdout == one.stdout
                   and "no plugin at /nowhere" in auto.stderr, auto.stderr.strip())
    if len(sys.argv) <= 3:
        return
    emulated = dict(os.environ, SKEIN_CUDA_PLUGIN=os.path.abspath(sys.argv[3]),
                    EMULATED_CUDA_GPUS="2")
    for names, said in (("cuda:1", ["on cuda:1"]), ("auto", ["on cuda:0", "on cuda:1"]),
                        ("cuda:0,cpu", ["on cuda:0", "on cpu x1"])):
        drawn = program.run(*words, "--devices", names, "--precision", "float32", env=emulated)
        program.expect(f"{names} draws the same text, with float32 numbers",
                       drawn.stdout == one.stdout and all(word in drawn.stderr for word in said),
                       drawn.stderr.strip())
    rounded = program.run(*words, "--devices", "cuda", env=emulated)
    program.expect("bfloat16 numbers draw some text", rounded.returncode == 0 and
                   len(rounded.stdout.split()) == 90, rounded.stderr.strip())
    for names, said in (("cuda:2", "there is no GPU 2"), ("cuda,cuda:0", "GPU 0 is given twice")):
        result = program.run(*words, "--devices", names, env=emulated)
        program.expect(f"{names} is refused in one line", result.returncode in (TROUBLE, USAGE) and
                       said in result.stderr and result.stderr.count("\n") == 1,
                       result.stderr.strip())
    # What the products work in takes nearly all of it.
    full = dict(emulated, EMULATED_CUDA_GPUS="1", EMULATED_CUDA_MEMORY_BYTES="33600000")
    result = program.run(*words, "--devices", "cuda", env=full)
    program.expect_refusal("what does not fit is refused before it is taken", TROUBLE,
                           ["takes", "available", "more memory"], result)
    result = program.run(*words, "--devices", "cuda,cpu", env=full)
    program.expect("a GPU that is full is left out", result.stdout == one.stdout and
                   "layers 0-5 on cpu x1" in result.stderr, result.stderr.strip())


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
    aside = os.path.join(program.folder, "aside")
    os.mkdir(aside)
    moved = program.run("eval", os.path.join(folder, ""), "--json", where=aside)
    program.expect("a checkpoint knows its run's data from any folder, also with a slash behind it",
                   moved.returncode == 0 and abs(json.loads(moved.stdout)["loss"] - loss) < 1e-5,
                   moved.stderr.strip())
    refused(program, "two sources are refused", USAGE, ["--data.mixture", "--data.path"], "eval",
            run, "--data.dataset", "text", "--data.path", "a.txt", "--data.mixture", "a.txt")
    refused(program, "a file that is not there is named", BAD_DATA, ["nope"], "eval", run,
            "--data.path", "nope")
    refused(program, "too long windows are refused", USAGE, ["64 positions"], "eval", run,
            "--seq-len", "65")
    refused(program, "other keys than those of data are refused", USAGE, ["--training.steps"],
            "eval", run, "--training.steps", "3")


def drawn_as_read(program, run):
    """A model that says something else behind every context."""
    def drawn(prompt, count):
        result = program.run("generate", run, "--ids", "--prompt", " ".join(map(str, prompt)),
                             "--tokens", str(count), "--temperature", "0")
        return [int(word) for word in result.stdout.split()]
    prompt = list(b"The licenses")
    tokens = drawn(prompt, 90)
    program.expect("what is drawn one by one, past the window, is as if it had been read at once",
                   len(set(tokens)) > 10 and all(drawn(prompt + tokens[:n], 9) == tokens[n:n + 9]
                                                 for n in (9, 30, 81)), str(tokens))


def mixed(program):
    """Data that are given stand for all that the run has; what the run has is found again."""
    for name, text in (("a.txt", "a" * 800), ("b.txt", "b" * 1600)):
        with open(os.path.join(program.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    trained, run = program.train("mixed", "--data.path", "", "--data.mixture", "a.txt,b.txt",
                                 "--data.weights", "1,2", "--training.steps", "1",
                                 "--model.initializer_range", "0.5")
    program.expect("a run on a mixture is trained", trained.returncode == 0, trained.stderr.strip())
    held = program.run("eval", run, where="/")
    program.expect("its mixture is found from any folder", "held out of" in held.stdout and
                   f"{program.folder}/a.txt, {program.folder}/b.txt" in held.stdout, held.stderr)
    one = program.run("eval", run, "--data.path", "a.txt")
    program.expect("a path stands for the mixture", "on a.txt: 24 windows" in one.stdout,
                   one.stdout + one.stderr)
    drawn_as_read(program, run)
    on_devices(program, run)
    again = program.run("train", "--resume", run, "--training.steps", "2", where="/")
    events = os.path.join(run, "events.jsonl")
    with open(events, encoding="utf-8") as file:
        changes = [line for line in file if "run.reconfigured" in line]
    program.expect("it goes on from another folder, and only its steps have changed",
                   again.returncode == 0 and len(changes) == 1 and "training.steps" in changes[0],
                   again.stderr.strip() + "".join(changes))


def too_large(program):
    """Memory is looked at before it is taken."""
    trained, run = program.train("long", "--model.name", "llama", "--model.n_layer", "64",
                                 "--model.positions", "1000000000",
                                 "--training.steps", "1")
    made = program.run("export", run, "long/model")
    program.expect("a model of many positions is made", trained.returncode == made.returncode == 0,
                   trained.stderr.strip() + made.stderr.strip())
    data = ["--data.dataset", "text", "--data.path", "zeros"]
    with open(os.path.join(program.folder, "zeros"), "wb") as file:
        file.truncate(1_100_000)
    usual = program.run("eval", "long/model", *data, "--windows", "1", "--batch", "1", "--json")
    program.expect("windows of a model that was not trained here have 1024 tokens",
                   usual.returncode == 0 and json.loads(usual.stdout)["seq_len"] == 1024,
                   usual.stderr.strip())
    refused(program, "eval says what to make smaller", TROUBLE, ["memory", "--batch", "--seq-len"],
            "eval", "long/model", *data, "--seq-len", "1000000", "--batch", "4096")
    refused(program, "generate says what to make smaller", TROUBLE, ["memory", "--tokens"],
            "generate", "long/model", "--tokens", "10000000")


def diverge(folder):
    """Makes the last weights no numbers."""
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\xff" * 4)


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
        whole = program.run("verify", out)
        program.expect(f"verify looks at the model in {out} file(s)", whole.returncode == 0 and
                       "weights are there and finite" in whole.stdout and
                       whole.stdout.count("\n") == 1, whole.stdout + whole.stderr)
    # As some published models: only config.json has the end token.
    model = os.path.join(program.folder, "one")
    os.remove(os.path.join(model, "generation_config.json"))
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, "eos_token_id": 5}, file)
    result = program.run("export", "one", "again")
    with open(os.path.join(program.folder, "again", "generation_config.json"), encoding="utf-8") as file:
        program.expect("the end token of config.json goes along", result.returncode == 0 and
                       json.load(file) == {"eos_token_id": 5}, result.stderr.strip())
    slashed = program.run("export", folder, "slashed/")
    program.expect("a folder may be given with a slash", slashed.returncode == 0 and
                   os.path.exists(os.path.join(program.folder, "slashed", "config.json")) and
                   not [name for name in os.listdir(program.folder) if name.endswith(".tmp")],
                   slashed.stderr.strip())
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
    refused(program, "bytes are no data for a model with a tokenizer", USAGE,
            ["tokenizer.json", "give token files"], "eval", run, "--data.dataset", "text",
            "--data.path", "licence.txt")
    export(program, folder, words)
    diverge(os.path.join(program.folder, "one"))
    refused(program, "verify names weights of a model that are no numbers", BAD_DATA, ["finite"],
            "verify", "one")
    again, none = program.train("bytes", "--model.from", "one", "--data.path", "licence.txt",
                                "--model.vocab_size", "328", "--model.n_embd", "96")
    program.expect_refusal("bytes are no data to begin with such a model, which costs no look at "
                           "its weights", USAGE, ["tokenizer.json", "give token files"], again)
    program.expect("and nothing is written", none is None, none)
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
    shutil.copy("/usr/share/common-licenses/GPL-3", os.path.join(program.folder, "licence.txt"))
    trained, run = program.train("used", "--training.steps", "20", "--data.path", "licence.txt",
                                 *ALL_WINDOWS)
    program.expect("a run is trained", trained.returncode == 0, trained.stderr.strip())
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        losses = [row["loss"] for row in map(json.loads, file) if row["kind"] == "validation"]
    folder = os.path.join(run, "checkpoint", "step-00000020")
    mixed(program)
    too_large(program)
    generation(program, folder)
    evaluation(program, run, folder, losses[-1])
    tokenized(program)
    program.finish()


main()
