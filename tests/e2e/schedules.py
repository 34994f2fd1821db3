#!/usr/bin/env python3
"""Every schedule, also with several stages per worker, gives the weights of the single process."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits, worst_relative  # noqa: E402
from running import Program  # noqa: E402

TOLERANCE = 1e-5  # Sums over rows are cut differently by replicas: float32 rounding only.
STEPS = ["--training.steps", "6"]
LAYER_BY_LAYER = ["--comm.bucket_cap_mb", "0.01"]  # Gradients are added up while others are computed.

SHAPES = {
    "3 stages": ["--parallelism.pipeline_parallel_degree", "3"],
    "2x2": ["--parallelism.pipeline_parallel_degree", "2",
            "--parallelism.data_parallel_replicate_degree", "2", *LAYER_BY_LAYER],
    "2 ranks of 2 stages": ["--parallelism.pipeline_parallel_degree", "2",
                            "--parallelism.virtual_stages", "2"],
    "1 + 2 replicas of 3 stages": ["--parallelism.replicas", "1,2",
                                   "--parallelism.virtual_stages", "3", *LAYER_BY_LAYER],
}
ONE_STAGE_PER_RANK = ("GPipe", "1F1B", "1F1B-PB", "ZBH1", "ZBH2", "Greedy")
SEVERAL = ("Interleaved1F1B", "Greedy")


def main():
    program = Program()
    reference = read_model(newest(program.run_reference("reference", *STEPS) + "/final"))
    for shape, words in SHAPES.items():
        several = "--parallelism.virtual_stages" in words
        for schedule in SEVERAL if several else ONE_STAGE_PER_RANK:
            result, run = program.train(f"{shape} {schedule}", *STEPS, *words,
                                        "--parallelism.pipeline_parallel_schedule", schedule)
            if result.returncode != 0:
                program.expect(f"{shape}, {schedule} runs", False, result.stderr.strip())
                continue
            worst, tensor = worst_relative(read_model(newest(run)), reference)
            program.expect(f"{shape}, {schedule} agrees with one process", worst <= TOLERANCE,
                           f"{worst:.1e} {tensor}")
    resumed_from_its_plan(program)
    program.finish()


def resumed_from_its_plan(program):
    """The plan that a run wrote is a plan that a run takes."""
    words = [*STEPS, "--parallelism.replicas", "1,3"]
    _, first = program.train("first", *words)
    result, second = program.train("second", *STEPS, "--parallelism.plan",
                                   os.path.join(first, "plan.txt"))
    program.expect("a run's plan.txt gives the same bits again", result.returncode == 0 and
                   same_bits(read_model(newest(first)), read_model(newest(second))),
                   result.stderr.strip())


main()
