#!/usr/bin/env python3
"""Every layout and schedule gives the weights of the single-process run, and the same bits twice.
The short form runs GPipe on some layouts only."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_index, read_model, same_bits, worst_relative  # noqa: E402
from running import LONG, Program  # noqa: E402

TOLERANCE = 1e-5  # Sums over rows are cut differently by replicas: float32 rounding only.

TWO_BY_TWO = ["--parallelism.pipeline_parallel_degree", "2",
              "--parallelism.data_parallel_replicate_degree", "2"]
LAYER_BY_LAYER = ["--comm.bucket_cap_mb", "0.01"]  # Gradients are added up while others are computed.

LAYOUTS = {  # Stages x replicas.
    "1x1": [],
    "2x1": ["--parallelism.pipeline_parallel_degree", "2"],
    "4x1": ["--parallelism.pipeline_parallel_degree", "4"],
    "2x2": TWO_BY_TWO,
    "2x2 in buckets": TWO_BY_TWO + LAYER_BY_LAYER,
    "2x2 at the end": TWO_BY_TWO + ["--comm.bucket_cap_mb", "0"],
    "1x1 + 1x3": ["--parallelism.replicas", "1,3"],
    "1x1 + 1x3 in buckets": ["--parallelism.replicas", "1,3", "--training.recompute"]
                            + LAYER_BY_LAYER,
    "1x4 in buckets": ["--parallelism.replicas", "4"] + LAYER_BY_LAYER,
    "layout 3,1": ["--parallelism.layout", "3,1"],
    "untied 2x1": ["--parallelism.pipeline_parallel_degree", "2",
                   "--model.tie_word_embeddings=false"],
    "llama 2x1": ["--parallelism.pipeline_parallel_degree", "2", "--model.name=llama"],
    "llama 2x2 in buckets": TWO_BY_TWO + LAYER_BY_LAYER + ["--model.name=llama"],
}
GPIPE = ("2x2", "1x1 + 1x3 in buckets", "llama 2x1")  # In the short form.
MODELS = {"untied": ["--model.tie_word_embeddings=false"], "llama": ["--model.name=llama"]}


def main():
    program = Program()
    references = {}
    for model in ("tied", *MODELS):
        words = MODELS.get(model, [])
        references[model] = read_model(newest(program.run_reference(model, *words) + "/final"))
    for name, words in LAYOUTS.items():
        reference = references[next((model for model in MODELS if model in name), "tied")]
        for schedule in ("1F1B", "GPipe") if LONG or name in GPIPE else ("1F1B",):
            runs = []
            for repeat in ("a", "b"):
                result, run = program.train(f"{name}-{schedule}-{repeat}", *words,
                                            "--parallelism.pipeline_parallel_schedule", schedule)
                if result.returncode != 0:
                    program.expect(f"{name} {schedule} runs", False, result.stderr.strip())
                    break
                runs.append(newest(run))
            if len(runs) < 2:
                continue
            worst, tensor = worst_relative(read_model(runs[0]), reference)
            program.expect(f"{name} {schedule} agrees with one process", worst <= TOLERANCE,
                           f"{worst:.1e} {tensor}")
            program.expect(f"{name} {schedule} gives the same bits twice",
                           same_bits(read_model(runs[0]), read_model(runs[1])) and
                           same_bits(read_index(runs[0], "optimizer.safetensors.index.json"),
                                     read_index(runs[1], "optimizer.safetensors.index.json")))
    program.finish()


main()
