#!/usr/bin/env python3
"""Examples whose models are too large for a test are read, planned and simulated as their pages say."""
import json
import os
import re
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import Program, SOURCE  # noqa: E402

EXAMPLES = os.path.join(SOURCE, "examples")
# As it was published.
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024, "n_embd": 768, "n_layer": 12,
        "n_head": 12, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
        "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}


def commands_of(page):
    """The first command of a page, and those of its table: as they are, or "the same with" other words."""
    with open(os.path.join(EXAMPLES, page), encoding="utf-8") as file:
        text = file.read()
    command = re.search(r"^skein .*$", text, re.MULTILINE)[0]
    yield command
    for same, words in re.findall(r"^\| (the same with )?`([^`]*)` \|", text, re.MULTILINE):
        command = command if same else words
        yield f"{command} {words}" if same else command


def main():
    program = Program()
    program.write("gpt2/config.json", json.dumps(GPT2))
    shown = program.run("config", "show", os.path.join(EXAMPLES, "finetune_gpt2.toml"))
    program.expect("the job that trains GPT-2 on is read, without a word of what is unknown in it",
                   shown.returncode == 0 and shown.stderr == "", shown.stderr.strip())
    for line in ('from = "gpt2"', "n_layer = 12", "n_embd = 768", "vocab_size = 50257", "steps = 200"):
        program.expect(f"it has {line}", re.search(f"^{line} ", shown.stdout, re.MULTILINE) is not None)
    commands = list(commands_of("llama3_1b.md"))
    program.expect("the page of Llama 3.2 1B plans and simulates",
                   [command.split()[1] for command in commands] == ["plan", "plan", "plan", "simulate", "simulate"],
                   commands)
    for command in commands:
        result = program.run(*shlex.split(command.replace("examples/", EXAMPLES + "/"))[1:])
        program.expect(f"it may be run: {command}", result.returncode == 0 and "llama3-1b" in result.stdout,
                       result.stderr.strip())
    program.finish()


main()
