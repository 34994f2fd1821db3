"""Models of transformers, the library, against ours: weights in and out, logits, loss and gradients.

    cmake/install-python-packages.sh transformers
    python3 tests/oracle/transformers_models.py build/release/skein [--write]

computes what tests/gpu/transformers.json has and compares it with that (--write writes it), so that
gpu_transformers, which needs no library, checks the product against the library. Then each model goes
through the program: trained at a rate that changes nothing, its checkpoint has the same bits, and the library
loads it and computes the same logits from it. Also models whose weights are float16 or bfloat16. Versions 4
and 5 of the library will do."""
import copy
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import pypi  # noqa: E402

pypi.need("torch", "transformers")
import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from checkpoints import read_model  # noqa: E402

REFERENCE = os.path.join(HERE, "..", "gpu", "transformers.json")
ROWS, LENGTH = 2, 40
POSITIONS = (0, 1, 18, LENGTH - 1)
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
LLAMA = {"model_type": "llama", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 20,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "vocab_size": 61, "n_positions": 64, "n_embd": 24, "n_layer": 2, "n_head": 3,
        "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True}
QWEN2 = {key: value for key, value in LLAMA.items() if not key.endswith("_bias") and key != "head_dim"}
QWEN2.update(model_type="qwen2", rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False,
             tie_word_embeddings=True)
CASES = {
    "gpt2": GPT2,
    "gpt2 untied": {**GPT2, "n_inner": 20, "tie_word_embeddings": False},
    "llama": {**LLAMA, "num_key_value_heads": 4},
    "llama of shared keys, tied": {**LLAMA, "tie_word_embeddings": True},
    "llama of one key head, heads of their own size, llama3": {
        **LLAMA, "num_key_value_heads": 1, "head_dim": 10, "rope_scaling": LLAMA3},
    "llama with biases, linear": {**LLAMA, "attention_bias": True, "mlp_bias": True,
                                  "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "qwen2": QWEN2,
    "qwen2 untied": {**QWEN2, "tie_word_embeddings": False},
}


def hash_of(name, count):
    """As tests/gpu/transformers_test.cpp has it."""
    value = 14695981039346656037
    for char in name.encode():
        value = (value ^ char) * 1099511628211 % 2 ** 64
    with numpy.errstate(over="ignore"):
        x = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        x ^= numpy.uint64(value)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return (x ^ (x >> numpy.uint64(31))) >> numpy.uint64(40)


def weights_of(name, shape):
    values = hash_of(name, int(numpy.prod(shape))).astype(numpy.float64) / 2 ** 23 - 1
    is_norm = len(shape) == 1 and name.endswith(".weight")
    return torch.tensor(((1 if is_norm else 0) + values / 4).astype(numpy.float32).reshape(shape))


def make_model(config):
    words = copy.deepcopy(config)  # Version 5 adds to what it is given.
    del words["model_type"]
    kind = transformers.AutoConfig.for_model(config["model_type"], **words)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights_of(name, tuple(parameter.shape)))
    return model.eval()


def tokens_of(config):
    count = ROWS * (LENGTH + 1)
    values = (hash_of("tokens", count) % numpy.uint64(config["vocab_size"])).astype(numpy.int64)
    return torch.tensor(values.reshape(ROWS, LENGTH + 1))


def digest(values):
    values = values.detach().double().flatten()
    step = max(len(values) // 3, 1)
    return {"norm": float(f"{values.norm().item():.7g}"),
            "samples": [float(f"{value:.7g}") for value in values[::step][:3].tolist()]}


def compute(name, config):
    model = make_model(config)
    tokens = tokens_of(config)
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    return {"name": name, "config": config, "loss": float(f"{loss.item():.7g}"),
            "logits": [{"position": p, **digest(logits[0, p])} for p in POSITIONS],
            "gradients": {key: {"shape": list(value.shape), **digest(value.grad)}
                          for key, value in model.named_parameters()}}


def worst_difference(one, other):
    """Between two of what compute returns, relative to the size of each tensor."""
    worst = abs(one["loss"] - other["loss"])
    pairs = list(zip(one["logits"], other["logits"]))
    pairs += [(value, other["gradients"][key]) for key, value in one["gradients"].items()]
    for a, b in pairs:
        size = max(a["norm"], 1e-3)
        for x, y in zip([a["norm"], *a["samples"]], [b["norm"], *b["samples"]]):
            worst = max(worst, abs(x - y) / size)
    return worst


def expect(what, holds, detail=""):
    print(("ok   " if holds else "FAIL ") + what, detail if not holds else "", flush=True)
    if not holds:
        sys.exit(1)


def check_program(skein, name, config, kind):
    """The library's folder through a run of ours and back."""
    model, rounded = make_model(config), make_model(config)
    with torch.no_grad():  # The weights only: wavelengths are not rounded when they are read.
        for parameter in rounded.parameters():
            parameter.copy_(parameter.to(kind))
    model.load_state_dict(rounded.state_dict())
    model.to(kind)
    with tempfile.TemporaryDirectory() as folder:
        there, text = os.path.join(folder, "there"), os.path.join(folder, "text")
        model.save_pretrained(there)
        # Symbols that the vocabulary has.
        numpy.arange(4096, dtype=numpy.uint16).__mod__(config["vocab_size"]).tofile(text)
        job = os.path.join(folder, "job.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(f'[job]\nname = "t"\ndump_folder = "{folder}/runs"\n[data]\ndataset = "tokens"\n'
                       f'path = "{text}"\n[training]\nsteps = 2\nseq_len = {LENGTH}\nmicro_batch_size = 2\n'
                       'global_batch_size = 4\n[optimizer]\nlr = 1e-30\n[validation]\nbatches = 0\n'
                       '[checkpoint]\nkeep_latest_k = 0\n')
        result = subprocess.run([skein, "train", job, "--model.from", there,
                                 "--parallelism.pipeline_parallel_degree", "2"],
                                capture_output=True, text=True, check=False, timeout=300)
        expect(f"{name}, {kind}: is trained on", result.returncode == 0, result.stderr[-400:])
        for step in (0, 2):
            run = os.path.join(folder, "runs", os.listdir(os.path.join(folder, "runs"))[0])
            ours = os.path.join(run, "checkpoint", f"step-{step:08}")
            read = read_model(ours)
            same = all((read[key] == value.detach().float().numpy()).all()
                       for key, value in model.named_parameters())
            expect(f"{name}, {kind}: step {step} has the same bits", same and
                   len(read) == len(dict(model.named_parameters())))
            back = transformers.AutoModelForCausalLM.from_pretrained(
                ours, torch_dtype=torch.float32, attn_implementation="eager").eval()
            expect(f"{name}, {kind}: is a {type(model).__name__} again", type(back) is type(model))
            tokens = tokens_of(config)[:, :-1]
            with torch.no_grad():
                expect(f"{name}, {kind}: with the same logits",
                       torch.equal(back(tokens).logits, rounded(tokens).logits))


def main():
    skein, is_written = sys.argv[1], "--write" in sys.argv
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    cases = [compute(name, config) for name, config in CASES.items()]
    if is_written:
        with open(REFERENCE, "w", encoding="utf-8") as file:
            heads = {"made_by": "tests/oracle/transformers_models.py --write",
                     "torch": torch.__version__, "transformers": transformers.__version__}
            file.write(json.dumps(heads)[:-1] + ', "cases": [\n')
            file.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "]}\n")
    with open(REFERENCE, encoding="utf-8") as file:
        known = json.load(file)["cases"]
    expect("the file has the cases", [case["name"] for case in known] == list(CASES))
    for case, other in zip(cases, known):
        worst = worst_difference(case, other)
        expect(f"{case['name']}: as the file has it", case["config"] == other["config"] and worst < 1e-5,
               f"worst {worst:.1e}")
    for name, config in CASES.items():
        for kind in (torch.float32, torch.bfloat16) if "llama" in name else (torch.float32, torch.float16):
            check_program(skein, name, config, kind)
    print("all as the library has it")


main()
