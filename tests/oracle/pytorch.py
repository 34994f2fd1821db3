"""Compares gradients and twenty AdamW steps with PyTorch, from the same weights on the same data."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
try:
    import numpy
    import torch
except ImportError:
    print("skipped: needs python3-torch and python3-numpy")
    sys.exit(77)
from checkpoints import newest, read_model, read_safetensors  # noqa: E402
from running import Program  # noqa: E402
from small_job_optimizer import SmallJobOptimizer  # noqa: E402

STEPS = 20
SAMPLED = 24
JOB = {"heads": 4, "seq_len": 32}
GRADIENT_TOLERANCE = 1e-4  # Relative to each tensor's norm.
LOSS_TOLERANCE = 1e-3


def gpt2(weights, tokens):
    """The forward pass, written out: logits for [B, T] tokens."""
    functional = torch.nn.functional
    heads = JOB["heads"]
    batch, length = tokens.shape
    x = weights["transformer.wte.weight"][tokens] + weights["transformer.wpe.weight"][:length]
    width = x.shape[-1]
    mask = torch.ones(length, length).tril().bool()
    for i in range(1 + max(int(n.split(".")[2]) for n in weights if ".h." in n)):
        layer = {n.split(f".h.{i}.")[1]: w for n, w in weights.items() if f".h.{i}." in n}
        h = functional.layer_norm(x, (width,), layer["ln_1.weight"], layer["ln_1.bias"])
        qkv = h @ layer["attn.c_attn.weight"] + layer["attn.c_attn.bias"]
        q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2)
                   for part in qkv.split(width, dim=2))
        scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5
        attended = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        attended = attended.transpose(1, 2).reshape(batch, length, width)
        x = x + attended @ layer["attn.c_proj.weight"] + layer["attn.c_proj.bias"]
        h = functional.layer_norm(x, (width,), layer["ln_2.weight"], layer["ln_2.bias"])
        h = functional.gelu(h @ layer["mlp.c_fc.weight"] + layer["mlp.c_fc.bias"],
                            approximate="tanh")
        x = x + h @ layer["mlp.c_proj.weight"] + layer["mlp.c_proj.bias"]
    x = functional.layer_norm(x, (width,), weights["transformer.ln_f.weight"],
                              weights["transformer.ln_f.bias"])
    head = weights.get("lm_head.weight", weights["transformer.wte.weight"])
    return x @ head.T


def llama3_frequencies(frequencies, factor=4.0, low=1.0, high=4.0, original=24):
    """Long waves are factor times as long, short ones stay, and those in between are in between."""
    scaled = []
    for frequency in frequencies.tolist():
        wave = 2 * numpy.pi / frequency
        if wave > original / low:
            scaled.append(frequency / factor)
        elif wave < original / high:
            scaled.append(frequency)
        else:
            kept = (original / wave - low) / (high - low)
            scaled.append((1 - kept) * frequency / factor + kept * frequency)
    return torch.tensor(scaled, dtype=torch.float64)


def llama(weights, tokens, theta=10000.0, scaling=lambda frequencies: frequencies):
    """The same of Llama: weights are [out, in], channels i and i + D / 2 turn together. Heads of queries in a row
    share one of keys and values, if there are fewer of these."""
    functional = torch.nn.functional
    heads, (batch, length) = JOB["heads"], tokens.shape
    x = weights["model.embed_tokens.weight"][tokens]
    size = weights["model.layers.0.self_attn.q_proj.weight"].shape[0] // heads
    frequencies = scaling(theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size))
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    cosines, sines = (torch.cat([f(angles)] * 2, dim=-1).float() for f in (torch.cos, torch.sin))

    def norm(values, name):
        mean_square = values.pow(2).mean(-1, keepdim=True)
        return values * torch.rsqrt(mean_square + 1e-5) * weights[name]

    def linear(values, name):
        return functional.linear(values, weights[name + ".weight"], weights.get(name + ".bias"))

    def heads_of(values, rotated):
        values = values.view(batch, length, -1, size).transpose(1, 2)
        values = values.repeat_interleave(heads // values.shape[1], dim=1)
        half = torch.cat([-values[..., size // 2:], values[..., :size // 2]], dim=-1)
        return values * cosines + half * sines if rotated else values

    mask = torch.ones(length, length).tril().bool()
    for i in range(1 + max(int(n.split(".")[2]) for n in weights if ".layers." in n)):
        layer = f"model.layers.{i}."
        h = norm(x, layer + "input_layernorm.weight")
        q, k, v = (heads_of(linear(h, f"{layer}self_attn.{p}_proj"), p != "v") for p in "qkv")
        scores = (q @ k.transpose(2, 3) / size ** 0.5).masked_fill(~mask, float("-inf"))
        attended = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, heads * size)
        x = x + linear(attended, layer + "self_attn.o_proj")
        h = norm(x, layer + "post_attention_layernorm.weight")
        gated = functional.silu(linear(h, layer + "mlp.gate_proj"))
        x = x + linear(gated * linear(h, layer + "mlp.up_proj"), layer + "mlp.down_proj")
    x = norm(x, "model.norm.weight")
    return x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T


def compare(program, name, words, model=gpt2):
    folder = program.run_reference(name, *words)
    start = read_model(newest(folder + "/initial"))
    weights = {k: torch.tensor(v.copy(), requires_grad=True) for k, v in start.items()}
    batches = numpy.fromfile(folder + "/batches.bin", dtype=numpy.int32)
    batches = torch.tensor(batches.reshape(STEPS, -1, JOB["seq_len"] + 1).astype(numpy.int64))
    with open(folder + "/losses.json", encoding="utf-8") as file:
        our_losses = json.load(file)
    optimizer = SmallJobOptimizer(weights.values(), STEPS)
    worst_loss = 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        tokens, targets = batches[step, :, :-1], batches[step, :, 1:]
        logits = model(weights, tokens)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                 targets.reshape(-1))
        loss.backward()
        worst_loss = max(worst_loss, abs(loss.item() - our_losses[step]))
        if step == 0:
            check_gradients(program, name, weights, read_safetensors(folder +
                                                                     "/gradients.safetensors"))
        optimizer.step()
    program.expect(f"{name}: {STEPS} AdamW steps within {LOSS_TOLERANCE} in loss",
                   worst_loss <= LOSS_TOLERANCE,
                   f"worst {worst_loss:.1e}, last {our_losses[-1]:.4f}")


def check_gradients(program, name, weights, ours):
    worst, where = 0.0, ""
    for key, weight in weights.items():
        theirs = weight.grad.numpy().astype(numpy.float64)
        distance = (numpy.linalg.norm(ours[key] - theirs) / max(numpy.linalg.norm(theirs), 1e-12))
        if distance > worst:
            worst, where = distance, key
    program.expect(f"{name}: all {len(weights)} gradients within {GRADIENT_TOLERANCE} relative",
                   ours.keys() == weights.keys() and worst <= GRADIENT_TOLERANCE,
                   f"worst {worst:.1e} {where}")


def context_begin(count):
    """Behind a full window the context moves on by halves of it."""
    half = JOB["seq_len"] // 2
    return max(0, -(-(count - JOB["seq_len"]) // half) * half)


def check_generation(program, model):
    """Greedy samples, from prompts shorter and longer than the window that was trained."""
    name = model.__name__
    _, run = program.train(f"generation-{name}", "--data.dataset", "kjv", "--data.path", "",
                           "--training.steps", "200", "--optimizer.lr", "5e-3", "--model.name", name)
    folder = newest(run)
    weights = {k: torch.tensor(v) for k, v in read_model(folder).items()}
    text = b"The licenses for most software are designed to take away your freedom to share it."
    for length in (1, 20, JOB["seq_len"] - 1, JOB["seq_len"], JOB["seq_len"] + 1, len(text)):
        tokens = list(text[:length])
        for _ in range(SAMPLED):
            window = torch.tensor([tokens[context_begin(len(tokens)):]])
            tokens.append(int(model(weights, window)[0, -1].argmax()))
        result = subprocess.run(
            [program.skein, "generate", folder, "--prompt", text[:length].decode(), "--tokens",
             str(SAMPLED), "--temperature", "0"], capture_output=True, check=False, timeout=60)
        program.expect(f"{name}: {SAMPLED} greedy symbols behind {length} are PyTorch's",
                       result.stdout == bytes(tokens) + b"\n", repr(result.stdout[length:]))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    program = Program()
    compare(program, "tied", [])
    compare(program, "untied", ["--model.tie_word_embeddings=false"])
    compare(program, "recompute", ["--training.recompute"])
    compare(program, "llama", ["--model.name", "llama"], llama)
    compare(program, "llama untied",
            ["--model.name=llama", "--model.tie_word_embeddings=false", "--training.recompute",
             "--model.intermediate_size", "100"], llama)
    compare(program, "llama with biases",
            ["--model.name=llama", "--model.bias=true", "--model.rope_theta=500"],
            lambda weights, tokens: llama(weights, tokens, 500.0))
    compare(program, "llama with shared keys and long waves scaled",
            ["--model.name=llama", "--model.num_key_value_heads=2", "--model.head_dim=10",
             "--model.rope_type=llama3", "--model.rope_factor=4", "--model.rope_original_max_position_embeddings=24"],
            lambda weights, tokens: llama(weights, tokens, scaling=llama3_frequencies))
    compare(program, "qwen2", ["--model.name=qwen2", "--model.num_key_value_heads=1", "--model.rope_type=linear",
                               "--model.rope_factor=2"],
            lambda weights, tokens: llama(weights, tokens, scaling=lambda frequencies: frequencies / 2))
    check_generation(program, gpt2)
    check_generation(program, llama)
    program.finish()


main()
