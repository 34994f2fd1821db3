#!/usr/bin/env python3
"""Steps that are pulled as tokens beside synchronous steps and local updates, where workers sleep as in Fela's
straggler models (H3 and H4, from memory of the paper).

    bench/tokens.py build/release/skein build/release/bench/token_rate [--rounds 3] [--steps 24]
    bench/tokens.py build/release/skein build/release/bench/token_rate --server

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
import os
import statistics
import subprocess
import sys
import tempfile
import time

from trained import end_of, metrics_of

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from elastic_runs import ElasticRun, Place  # noqa: E402

WORKERS = 8
STEP_MS = 240
WARM_UP = 4
BLOCKS, SAMPLES, MICRO_BATCH = 4, 64, 8
FORWARD_US, BACKWARD_US = 2500, 5000  # A block's, for a sample.
OFF_MAX = 0.05
JOB = f"""
[job]
name = "tokens"
[model]
n_layer = {BLOCKS}
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
micro_batch_size = {MICRO_BATCH}
global_batch_size = {SAMPLES}
[device]
type = "sleep"
sleep_forward_us = {MICRO_BATCH * FORWARD_US}
sleep_backward_us = {MICRO_BATCH * BACKWARD_US}
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


def simulated_ms(rate, steps, words, scenario):
    """None: the simulator of tokens has nothing to say of this mode."""
    if words.get("sync.policy") != "tokens":
        return None
    samples = words["tokens.samples"].strip("[]").replace(" ", "")
    command = [rate, WORKERS, SAMPLES, samples, BLOCKS, FORWARD_US, BACKWARD_US, WARM_UP, steps, scenario]
    return float(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)


def print_scenarios(options):
    calm, misses = {}, []
    print(f"{'ms a step, and added to H0':28}" + "".join(f"{name:>26}" for name in MODES), flush=True)
    for name, scenario in SCENARIOS.items():
        times = {mode: [] for mode in MODES}
        for _ in range(options.rounds):
            for mode, words in MODES.items():
                times[mode].append(step_ms(options.skein, options.steps, words, scenario))
        row, predicted = f"{name:28}", f"{'  simulated':28}"
        for mode, values in times.items():
            median = statistics.median(values)
            added = median - calm.setdefault(mode, median)
            row += f"{median:8.0f} ({min(values):.0f}-{max(values):.0f}) {added:+6.0f}".rjust(26)
            simulated = simulated_ms(options.rate, options.steps, MODES[mode], scenario)
            off = 0 if simulated is None else simulated / median - 1
            predicted += " " * 26 if simulated is None else f"{simulated:.0f} {off:+6.1%}".rjust(26)
            if abs(off) > OFF_MAX:
                misses.append(f"{mode}, {name}")
        print(row + "\n" + predicted, flush=True)
    print(f"simulated within {OFF_MAX:.0%}: " + ("MISSED by " + "; ".join(misses) if misses else "met"))


def coordinator_cost(skein, words):
    """Seconds by the clock from the workers' start, and processor seconds of the coordinator alone."""
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "job.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        keys = [word for name, value in words.items() for word in ("--" + name, str(value))]
        run = ElasticRun(Place(skein, folder), "server", WORKERS, *keys, apart=True, job=job)
        begun = time.monotonic()
        _, status, used = os.wait4(run.coordinator.pid, 0)
        lasted = time.monotonic() - begun
        for worker in run.workers:
            worker.wait()
        if status:
            sys.exit(run.errors())
        return lasted, used.ru_utime + used.ru_stime


def print_server(options):
    def difference(words, short, long):
        costs = [coordinator_cost(options.skein, {**words, "training.steps": steps}) for steps in (short, long)]
        return [(b - a) / (long - short) for a, b in zip(*costs)]

    tokens = 1024
    rates = []
    for _ in range(options.rounds):
        wall, processor = difference({**MODES["tokens"], "training.global_batch_size": tokens,
                                      "device.sleep_forward_us": 1, "device.sleep_backward_us": 1}, 10, 60)
        rates.append((tokens / wall, tokens / processor))
    for what, values in zip(("by the clock, nine processes on this machine", "of the coordinator's processor time"),
                            zip(*rates)):
        print(f"tokens a second {what}: {statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})")
    sleeping = {f"device.sleep_{what}_us": MICRO_BATCH * took * 50 // STEP_MS
                for what, took in (("forward", FORWARD_US), ("backward", BACKWARD_US))}
    for name in ("tokens", "together"):
        shares = []
        for _ in range(options.rounds):
            wall, processor = difference({**MODES[name], **sleeping}, 20, 120)
            shares.append((wall * 1e3, processor / 50e-3))
        walls, parts = zip(*shares)
        print(f"{name}: of a step of 50 ms ({statistics.median(walls):.0f} here) of {SAMPLES} samples the coordinator's "
              f"process computes {statistics.median(parts):.1%} ({min(parts):.1%}-{max(parts):.1%})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("rate", help="build/release/bench/token_rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--server", action="store_true", help="what granting tokens costs, instead")
    options = parser.parse_args()
    print_server(options) if options.server else print_scenarios(options)


main()
