#!/usr/bin/env python3
"""Text becomes token files that a job trains on. All of it needs Hugging Face's `tokenizers`; without
it only the refusals are looked at, and the rest is said to be skipped."""
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SOURCE, TOKENIZERS_PYTHON, Program  # noqa: E402

TOOL = os.path.join(SOURCE, "tools", "skein-prepare")
USAGE, BAD_DATA = 2, 3
SKIPPED = 77  # As ctest knows it.


def prepare(program, *words, python="/usr/bin/python3"):
    return subprocess.run([python, TOOL, *words], cwd=program.folder, text=True, capture_output=True,
                          check=False, timeout=120)


def read_shard(path):
    with open(path, "rb") as file:
        magic, version, count = struct.unpack("<3i", file.read(12))
        file.seek(1024)
        tokens = list(struct.unpack(f"<{count}H", file.read()))
    return magic, version, tokens


def shards(program, folder):
    """The bytes of every shard, by name."""
    contents = {}
    for name in sorted(os.listdir(os.path.join(program.folder, folder))):
        if name.endswith(".bin"):
            with open(os.path.join(program.folder, folder, name), "rb") as file:
                contents[name] = file.read()
    return contents


def without_library(program):
    python = subprocess.run(["/usr/bin/python3", "-c", "import tokenizers"], capture_output=True,
                            check=False)
    if python.returncode != 0:
        program.expect_refusal("without the library it says what to install", USAGE,
                               ["pip install tokenizers"], prepare(program, "out", "x.txt", "--tokenizer", "t"))
    program.expect_refusal("a folder that is there is left alone", USAGE, ["there already"],
                           prepare(program, ".", "x.txt", "--tokenizer", "t"))
    program.expect_refusal("shards have at least a token", USAGE, ["--shard-tokens"],
                           prepare(program, "out", "x.txt", "--tokenizer", "t", "--shard-tokens", "0"))


def with_library(program, python):
    """Returns the checkpoint of a run on the data in long-out."""
    with open(os.path.join(SOURCE, "tests/golden/text/tokenizers.json"), encoding="utf-8") as file:
        golden = json.load(file)
    program.write("model/tokenizer.json", json.dumps(golden["base"]))
    program.write("model/tokenizer_config.json", json.dumps({"eos_token": "<|end|>"}))
    program.write("model/chat_template.jinja", "{{ messages }}")
    program.write("in/b/second.jsonl", '{"text": " the geese fly"}\n\n{"text": "the geese"}\n')
    program.write("in/a.txt", "the geese")
    expected = dict(zip(golden["texts"], golden["expected"]["gpt2"]))
    common = ["--tokenizer", "model"]
    made = prepare(program, "out", "in", *common, "--shard-tokens", "5", python=python)
    program.expect("a folder is prepared", made.returncode == 0, made.stderr.strip())
    with open(os.path.join(program.folder, "out", "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    tokens = []
    for shard in manifest["train"]:
        magic, version, part = read_shard(os.path.join(program.folder, "out", shard["file"]))
        program.expect(f"{shard['file']} has llm.c's header and its tokens",
                       (magic, version, len(part)) == (20240520, 1, shard["tokens"]))
        tokens += part
    program.expect("the chat template goes along",
                   os.path.exists(os.path.join(program.folder, "out", "chat_template.jinja")))
    end = [0]
    program.expect("tokens are those of the documents in order, each with its end",
                   tokens == expected["the geese"] + end + expected[" the geese fly"] + end +
                   expected["the geese"] + end, str(tokens))
    program.expect("nothing else is left", sorted(os.listdir(program.folder)) == ["in", "model", "out"])
    program.write("long/a.txt", " the geese fly" * 800)
    program.write("long/b.jsonl", '{"text": " the geese fly"}\n' * 400)
    held = ["long", *common, "--validation-fraction", "0.3"]
    made = prepare(program, "long-out", *held, python=python)
    again = prepare(program, "long-again", *held, python=python)
    other = prepare(program, "long-other", *held, "--seed", "7", python=python)
    program.expect("three are prepared", made.returncode == again.returncode == other.returncode == 0,
                   made.stderr + again.stderr + other.stderr)
    program.expect("what is held out depends on the seed", shards(program, "long-out") ==
                   shards(program, "long-again") != shards(program, "long-other"))
    trained, run = program.train("run", "--data.dataset", "tokens", "--data.path",
                                 "long-out/manifest.json", "--model.vocab_size", "328",
                                 "--training.steps", "3")
    checkpoint = os.path.join(run, "checkpoint/step-00000003")
    program.expect("a job trains on the manifest, and its checkpoint has the tokenizer",
                   trained.returncode == 0 and os.path.exists(os.path.join(checkpoint, "tokenizer.json")),
                   trained.stderr)
    with open(os.path.join(checkpoint, "generation_config.json"), encoding="utf-8") as file:
        program.expect("and says behind which token a text ends", json.load(file) == {"eos_token_id": 0})
    small = program.run("train", os.path.join(SOURCE, "tests/support/small_job.toml"),
                        "--job.dump_folder", "small", "--data.dataset", "tokens", "--data.path",
                        "long-out/manifest.json")
    program.expect_refusal("a smaller vocabulary is refused", USAGE, ["328 tokens", "vocab_size"], small)
    program.write("empty.txt", "")
    for claim, code, words, given in (
            ("a missing input is named", BAD_DATA, ["nope"], ["nope"]),
            ("a line without the key is named", BAD_DATA, ["b.jsonl:1", "--key"],
             ["long/b.jsonl", "--key", "body"]),
            ("an input without text is called so", BAD_DATA, ["no text to train on"], ["empty.txt"]),
            ("where all is held out, the inputs are not called empty", BAD_DATA,
             ["the only document is held out", "--validation-fraction"],
             ["in/a.txt", "--validation-fraction", "0.9"]),
            ("an unknown end token is named", USAGE, ["<end>", "--end-token"],
             ["in", "--end-token", "<end>"])):
        program.expect_refusal(claim, code, words, prepare(program, "bad", *given, *common, python=python))
        program.expect(f"{claim}, and nothing is left",
                       not any(name.startswith("bad") for name in os.listdir(program.folder)))
    return checkpoint


def moved(program, checkpoint):
    """Data of which only the manifest says which tokenizer they were prepared with."""
    data = ["--data.dataset", "tokens", "--data.path", "long-out/manifest.json"]
    os.remove(os.path.join(program.folder, "long-out", "tokenizer.json"))
    judged = program.run("eval", checkpoint, *data)
    program.expect("a digest is enough", judged.returncode == 0, judged.stderr)
    manifest = os.path.join(program.folder, "long-out", "manifest.json")
    with open(manifest, encoding="utf-8") as file:
        other = json.load(file)
    other["tokenizer"]["sha256"] = "0" * 64
    program.write("long-out/manifest.json", json.dumps(other))
    program.expect_refusal("eval refuses data of another tokenizer", USAGE, ["manifest.json", "SHA-256"],
                           program.run("eval", checkpoint, *data))
    trained = program.run("train", os.path.join(SOURCE, "tests/support/small_job.toml"), "--model.from", checkpoint,
                          "--job.dump_folder", "other", "--model.vocab_size", "328", *data)
    program.expect_refusal("and so does train", USAGE, ["manifest.json", "SHA-256"], trained)
    program.expect("and leaves no run", not os.path.exists(os.path.join(program.folder, "other")))


def endings(program, python):
    """What stands between documents, and at the ends of lines."""
    program.write("lines/a.txt", "x\r\ny")
    program.write("lines/b.jsonl", '{"text": "the geese"}\r\n')
    program.write("model/generation_config.json", json.dumps({"eos_token_id": 7, "top_p": 0.5}))
    made = prepare(program, "lines-out", "lines", "--tokenizer", "model", python=python)
    tokens = read_shard(os.path.join(program.folder, "lines-out", "train_00000.bin"))[2] if made.returncode == 0 else []
    with open(os.path.join(SOURCE, "tests/golden/text/tokenizers.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)["base"]["model"]["vocab"]
    program.expect("a carriage return is a token, and none behind a line of JSON",
                   tokens.count(vocabulary["\u010d"]) == 1 and tokens.count(0) == 2, f"{tokens} {made.stderr}")
    with open(os.path.join(program.folder, "lines-out", "generation_config.json"), encoding="utf-8") as file:
        program.expect("the end of documents is an end of texts, too",
                       json.load(file) == {"eos_token_id": [7, 0], "top_p": 0.5})
    program.write("model/generation_config.json", json.dumps({"eos_token_id": "</s>", "top_p": 0.5}))
    made = prepare(program, "named-out", "lines", "--tokenizer", "model", python=python)
    with open(os.path.join(program.folder, "named-out", "generation_config.json"), encoding="utf-8") as file:
        program.expect("an end that is named and no number gives way to the number of the documents'",
                       json.load(file) == {"eos_token_id": 0, "top_p": 0.5}, made.stderr)
    program.write("model/generation_config.json", "no JSON")
    # Its input would be read for a long time.
    program.expect_refusal("what goes along is looked at before any document", BAD_DATA, ["model/generation_config.json"],
                           prepare(program, "bad", "nope", "--tokenizer", "model", python=python))
    for name in ("tokenizer_config.json", "generation_config.json"):
        path = os.path.join(program.folder, "model", name)
        os.rename(path, path + ".aside")
        os.mkdir(path)
        program.expect_refusal(f"{name} that cannot be read is named", BAD_DATA, [f"model/{name}", "directory"],
                               prepare(program, "bad", "in", "--tokenizer", "model", python=python))
        os.rmdir(path)
        os.rename(path + ".aside", path)
    os.remove(os.path.join(program.folder, "model", "generation_config.json"))
    # A path that is too long cannot be listed by anybody.
    folder = os.open(program.folder, os.O_RDONLY)
    for name in ("deep", *["d" * 250] * 20):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    program.expect_refusal("a folder that cannot be listed is named", BAD_DATA, ["deep/ddd", "too long"],
                           prepare(program, "bad", "in", "deep", "--tokenizer", "model", python=python))


def stopped(program, python):
    """Its input never ends."""
    pipe = os.path.join(program.folder, "endless.txt")
    os.mkfifo(pipe)
    words = [python, TOOL, "stopped", pipe, "--tokenizer", "model"]
    with subprocess.Popen(words, cwd=program.folder, stderr=subprocess.PIPE, text=True) as process:
        with open(pipe, "w", encoding="utf-8") as file:
            file.write("the geese")
            file.flush()
            # Python does not wake for a signal that comes just before it begins to read.
            while process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=2)
        error, code = process.stderr.read(), process.returncode
    program.expect("SIGTERM ends it, and nothing is left", code == 128 + signal.SIGTERM and error == "" and
                   not any(name.startswith("stopped") for name in os.listdir(program.folder)), f"{code} {error}")


def main():
    program = Program()
    without_library(program)
    if TOKENIZERS_PYTHON:
        checkpoint = with_library(program, TOKENIZERS_PYTHON)
        endings(program, TOKENIZERS_PYTHON)
        moved(program, checkpoint)
        stopped(program, TOKENIZERS_PYTHON)
    elif program.failures == 0:
        print("skipped: all but the refusals needs Hugging Face's tokenizers; cmake/install-python-packages.sh "
              "installs them")
        sys.exit(SKIPPED)
    program.finish()


main()
