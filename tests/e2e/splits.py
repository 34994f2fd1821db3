#!/usr/bin/env python3
"""Gradients of any r1-to-r2 split and concatenation, with unequal rows, equal those of one process.

One step of plain SGD from the same weights moves every weight by the gradient, times the learning
rate: large enough that the gradient can be read off the weights.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from running import Program  # noqa: E402

TOLERANCE = 1e-5  # Relative to each gradient's norm.
ROWS = {1: [8], 2: [5, 3], 3: [4, 1, 3], 4: [1, 3, 2, 2]}
RATE = 1000.0
WORDS = ["--training.steps", "1", "--training.micro_batch_size", "8", "--training.max_norm", "0",
         "--training.global_batch_size", "16", "--optimizer.name", "sgd", "--optimizer.momentum",
         "0", "--optimizer.weight_decay", "0", "--optimizer.lr", str(RATE),
         "--lr_scheduler.warmup_steps", "0", "--lr_scheduler.decay_type", "none",
         "--validation.batches", "0", "--model.n_layer", "2"]


def plan(first, second):
    """Two stages whose replicas take these rows of each micro-batch, on workers 1, 2, ..."""
    lines = ["plan generation=1 schedule=1F1B microbatches=2 rows=8 recompute=0"]
    number = 0
    ids = []
    for stage, (layers, rows) in enumerate((("0..2", first), ("2..4", second))):
        replicas, begin, members = [], 0, []
        for count in rows:
            replicas.append(f"r{number}@w{number + 1}[{begin}+{count}]")
            members.append(f"r{number}")
            begin += count
            number += 1
        lines.append(f"stage layers={layers} rank={stage} replicas={','.join(replicas)}")
        ids.append(members)
    lines += [f"group stage={stage} members={','.join(members)}" for stage, members in enumerate(ids)]
    lines.append(f"group tied members={','.join(ids[0] + ids[1])}")
    lines += ["rank 0F0,0F1,0B0,0B1", "rank 1F0,1B0,1F1,1B1"]
    return "\n".join(lines) + "\n"


def main():
    program = Program()
    folder = program.run_reference("reference", *WORDS)
    start = read_model(newest(folder + "/initial"))
    end = read_model(newest(folder + "/final"))
    gradients = {name: (start[name] - end[name]) / RATE for name in start}
    for first, rows_first in ROWS.items():
        for second, rows_second in ROWS.items():
            path = os.path.join(program.folder, "plan.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(plan(rows_first, rows_second))
            result, run = program.train(f"{first}-{second}", *WORDS, "--parallelism.plan", path)
            name = f"rows {rows_first} to {rows_second}"
            if result.returncode != 0:
                program.expect(name, False, result.stderr.strip())
                continue
            moved = read_model(newest(run))
            ours = {key: (start[key] - moved[key]) / RATE for key in start}
            worst, tensor = worst_relative(ours, gradients)
            program.expect(f"{name}: gradients of one process", worst <= TOLERANCE,
                           f"{worst:.1e} {tensor}")
    program.finish()


main()
