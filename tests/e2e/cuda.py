#!/usr/bin/env python3
"""Training on GPUs ends where training on processors does, also with replicas, whose gradients go by
way of the host; without a GPU a run says so and goes on.  cuda.py SKEIN [PLUGIN]
PLUGIN is one with an emulated GPU; without it only the refusal is tested."""
import glob
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import Program  # noqa: E402

STEPS = "4"
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
SMALL = ["--training.steps", STEPS, "--training.seq_len", "16", "--model.n_layer", "2",
         "--model.n_embd", "32", "--training.global_batch_size", "8"]
PIPELINE = ["--parallelism.pipeline_parallel_degree", "2",
            "--parallelism.data_parallel_replicate_degree", "2"]
FOUR = ["--parallelism.pipeline_parallel_degree", "4"]


def measured(run):
    """Losses and gradient norms of all steps."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["kind"] == "step"]
    return [row[key] for row in rows for key in ("loss", "grad_norm")]


def worst(got, wanted):
    return max(abs(a - b) / abs(b) for a, b in zip(got, wanted)) if len(got) == len(wanted) else 9


def lacks_cudnn(said):
    """By what a worker's log says of its device."""
    return "emulated" in said or "SKEIN_CUDNN_LIBRARY" not in os.environ


def main():
    program = Program()
    plugin = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    _, host = program.train("host", *SMALL, *PIPELINE)
    expected = measured(host)

    absent = dict(os.environ, SKEIN_CUDA_PLUGIN="/nowhere/libskein_cuda.so")
    result, run = program.train("absent", *SMALL, *PIPELINE, "--device.type", "auto", env=absent)
    said = ""
    for path in glob.glob(os.path.join(run, "logs", "worker-1.log")):
        with open(path, encoding="utf-8") as file:
            said = file.read().strip()
    program.expect("without the plugin a worker says in one line what is missing and what it uses",
                   result.returncode == 0 and len(said.splitlines()) == 1 and
                   "no plugin at /nowhere" in said and "threads of the processor" in said, said)
    program.expect("and gives the same bits as on the host", measured(run) == expected)

    for precision, tolerance in TOLERANCE.items() if plugin else ():
        emulated = dict(os.environ, SKEIN_CUDA_PLUGIN=plugin, SKEIN_NCCL_LIBRARY="/nowhere")
        result, run = program.train(precision, *SMALL, *PIPELINE, "--device.type", "cuda",
                                    "--device.precision", precision, env=emulated)
        if result.returncode != 0:
            program.expect(f"trains with {precision} products", False, result.stderr.strip())
            continue
        with open(os.path.join(run, "logs", "worker-1.log"), encoding="utf-8") as file:
            said = file.read()
        program.expect(f"a worker says where it has no cuDNN and wants it, {precision} products",
                       ("by our own kernels" in said) == (precision == "bfloat16" and lacks_cudnn(said)),
                       said.strip())
        error = worst(measured(run), expected)
        program.expect(f"two stages of two replicas train as on the host, {precision} products",
                       error < tolerance, f"off by {error:.1e}")
        result, run = program.train(f"four-{precision}", *SMALL, *FOUR, "--device.type", "cuda",
                                    "--device.precision", precision, env=emulated)
        error = worst(measured(run), expected) if result.returncode == 0 else 9
        program.expect(f"and so do four stages, {precision} products", error < tolerance,
                       result.stderr.strip() or f"off by {error:.1e}")
    program.finish()


main()
