"""Reads checkpoints with numpy and json alone, as anybody could."""
import json
import os

import numpy

TYPES = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64, "I32": numpy.int32}


def read_safetensors(path):
    """Returns {name: array}."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], dtype=TYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def newest(run_folder):
    """The checkpoint folder that `checkpoint/latest` of a run points at."""
    return os.path.realpath(os.path.join(run_folder, "checkpoint", "latest"))


def read_index(folder, index):
    """All tensors that an index names, each from the file that it names."""
    with open(os.path.join(folder, index), encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    files = {name: read_safetensors(os.path.join(folder, name)) for name in set(weight_map.values())}
    return {tensor: files[name][tensor] for tensor, name in weight_map.items()}


def read_model(folder):
    return read_index(folder, "model.safetensors.index.json")


def expected_shapes(config):
    """Names and shapes of GPT-2 in Hugging Face's form."""
    c, v, t = config["n_embd"], config["vocab_size"], config["n_positions"]
    shapes = {"transformer.wte.weight": (v, c), "transformer.wpe.weight": (t, c),
              "transformer.ln_f.weight": (c,), "transformer.ln_f.bias": (c,)}
    for i in range(config["n_layer"]):
        for name, shape in {
                "ln_1.weight": (c,), "ln_1.bias": (c,),
                "attn.c_attn.weight": (c, 3 * c), "attn.c_attn.bias": (3 * c,),
                "attn.c_proj.weight": (c, c), "attn.c_proj.bias": (c,),
                "ln_2.weight": (c,), "ln_2.bias": (c,),
                "mlp.c_fc.weight": (c, 4 * c), "mlp.c_fc.bias": (4 * c,),
                "mlp.c_proj.weight": (4 * c, c), "mlp.c_proj.bias": (c,)}.items():
            shapes[f"transformer.h.{i}.{name}"] = shape
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (v, c)
    return shapes


def worst_relative(a, b):
    """Largest relative distance of two sets of tensors, by the norm of each tensor."""
    assert a.keys() == b.keys(), set(a) ^ set(b)
    worst, name = 0.0, ""
    for key in a:
        scale = max(numpy.linalg.norm(b[key].astype(numpy.float64)), 1e-12)
        distance = numpy.linalg.norm(a[key].astype(numpy.float64) - b[key]) / scale
        if distance > worst:
            worst, name = distance, key
    return worst, name


def same_bits(a, b):
    return a.keys() == b.keys() and all((a[k].view(numpy.uint32) == b[k].view(numpy.uint32)).all()
                                        for k in a)
