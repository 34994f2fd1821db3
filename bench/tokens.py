#!/usr/bin/env python3
"""Steps that are pulled as tokens beside synchronous steps and local updates, where workers sleep as in Fela's
straggler models (H3 and H4, from memory of the paper).

    bench/tokens.py build/release/skein [--rounds 3] [--steps 24]

Eight workers on this machine, whose devices only sleep: 4 blocks, 30 ms a sample, 64 samples a step, so that a step
takes 240 ms where all have the same to do. Gradients really go between them; they are small. What is printed is the
time of a step, median and range of the rounds, and how much the scenario adds to that of H0. A round runs all modes,
one after the other.

  together    synchronous steps, eight replicas of one stage
  pipeline    synchronous steps, four stages of two replicas
  tokens      one sub-model, a sample a token
  2 levels    two sub-models, tokens of one sample and of four
  overlapped  local updates of eight pipeline replicas of one stage: per step of the job

A worker that sleeps does so before its first action of a step. The others have its tokens, but the step ends with the
sum of all workers' gradients, so it takes as long as the longest sleep at least.
"""
import argparse
import statistics
import tempfile

from trained import end_of, metrics_of

WORKERS = 8
STEP_MS = 240
WARM_UP = 4
JOB = """
[job]
name = "tokens"
[model]
n_layer = 4
n_head = 2
n_embd = 32
vocab_size = 64
positions = 16
tie_word_embeddings = false
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
micro_batch_size = 8
global_batch_size = 64
[device]
type = "sleep"
sleep_forward_us = 20000
sleep_backward_us = 40000
sleep_update_us = 1
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[elastic]
heartbeat_timeout_seconds = 30
snapshot_interval = 0
watch_speeds = false
"""
DEGREE, REPLICAS = "parallelism.pipeline_parallel_degree", "parallelism.data_parallel_replicate_degree"
MODES = {
    "together": {DEGREE: 1, REPLICAS: 8},
    "pipeline": {DEGREE: 4, REPLICAS: 2},
    "tokens": {"sync.policy": "tokens", "tokens.samples": "[1]"},
    "2 levels": {"sync.policy": "tokens", DEGREE: 2, "tokens.samples": "[1, 4]"},
    "overlapped": {DEGREE: 1, REPLICAS: 8, "sync.policy": "overlapped", "sync.round_steps": 8},
}
SCENARIOS = {
    "H0": "H0",
    "H3, 1 step": f"H3 sleep={STEP_MS * 1000}",
    "H3, 2 steps": f"H3 sleep={2 * STEP_MS * 1000}",
    "H4, 2 steps, 0.1": f"H4 sleep={2 * STEP_MS * 1000} probability=0.1 seed=3",
}


def step_ms(skein, steps, words, scenario):
    with tempfile.TemporaryDirectory() as folder:
        keys = {**words, "training.steps": steps + WARM_UP, "device.scenario": scenario}
        lines = [line for line in metrics_of(skein, JOB, {"workers": WORKERS, **keys}, folder)
                 if line["kind"] == "step"]
    first = next(line for line in lines if line["step"] >= WARM_UP)
    return (end_of(lines[-1]) - end_of(first)) / (lines[-1]["step"] - first["step"]) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    calm = {}
    print(f"{'ms a step, and added to H0':28}" + "".join(f"{name:>26}" for name in MODES), flush=True)
    for name, scenario in SCENARIOS.items():
        times = {mode: [] for mode in MODES}
        for _ in range(options.rounds):
            for mode, words in MODES.items():
                times[mode].append(step_ms(options.skein, options.steps, words, scenario))
        row = f"{name:28}"
        for mode, values in times.items():
            median = statistics.median(values)
            added = median - calm.setdefault(mode, median)
            row += f"{median:8.0f} ({min(values):.0f}-{max(values):.0f}) {added:+6.0f}".rjust(26)
        print(row, flush=True)


main()
