#!/usr/bin/env python3
"""Steps that are pulled as tokens beside synchronous steps and local updates, where workers sleep as in Fela's
straggler models (H3 and H4, from memory of the paper).

    bench/tokens.py build/release/skein build/release/bench/token_rate [--rounds 3] [--steps 24]
    bench/tokens.py build/release/skein build/release/bench/token_rate --server
    bench/tokens.py build/release/skein build/release/bench/token_rate --fela build/release/bench/fela [--profile FILE]

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

With `--fela`: cells of bench/fela's table, by default VGG-19 with three sizes of a batch under H0, H3 and H4; with
`--profile`, of the layers whose times that file has. The sub-models, tokens and workers are those that are tuned there,
and so are the sleeps; all times are `--faster` times shorter. A model of many small blocks stands for the layers: each
sub-model has so many of them that one of its tokens takes about as long as there, up to the rounding that is printed,
and forwards are the same part of the time in all. Activations and gradients are small here, so this is about who
computes and waits, not about links. Beside it is the simulation of these blocks, which is to be within 5 % of the
median.
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


def output_of(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def simulated_ms(rate, steps, words, scenario):
    """None: the simulator of tokens has nothing to say of this mode."""
    if words.get("sync.policy") != "tokens":
        return None
    samples = words["tokens.samples"].strip("[]").replace(" ", "")
    return float(output_of(rate, WORKERS, SAMPLES, samples, BLOCKS, FORWARD_US, BACKWARD_US, WARM_UP, steps, scenario))


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


class Cell:
    """Fela's plan of a batch, in blocks. A line of the program for each sub-model says what one token of it takes."""

    BLOCKS = 200  # The rounding is half a per cent of a sample's time at most.

    def __init__(self, options, samples):
        profile = ["--profile", options.profile] if options.profile else []
        lines = [line.split() for line in output_of(options.fela, *profile, "--plan", samples).splitlines()]
        levels = [list(map(float, words[1:])) for words in lines if words[0] == "level"]
        self.samples = samples
        self.data_us = next(float(words[1]) for words in lines if words[0] == "step") / options.faster
        self.rows = [int(level[1]) for level in levels]
        self.workers = [int(level[2]) for level in levels]
        # What a sample takes in each sub-model.
        each_us = [(level[3] + level[4]) / level[1] / options.faster for level in levels]
        forward_us = sum(level[3] / level[1] for level in levels) / options.faster
        self.blocks = [max(1, round(self.BLOCKS * own / sum(each_us))) for own in each_us]
        block_us = sum(each_us) / sum(self.blocks)
        self.forward_us = block_us * forward_us / sum(each_us)
        self.backward_us = block_us - self.forward_us
        self.rounding = [blocks * block_us / own - 1 for blocks, own in zip(self.blocks, each_us)]

    def words(self):
        limits = [0 if count == WORKERS else count for count in self.workers]
        return {"sync.policy": "tokens", "training.global_batch_size": self.samples, "model.n_layer": sum(self.blocks),
                "model.n_head": 1, "model.n_embd": 8, "training.seq_len": 4, "training.recompute": "true",
                "parallelism.layout": self.blocks, "tokens.samples": self.rows,
                "tokens.workers": limits, "device.sleep_forward_us": MICRO_BATCH * self.forward_us,
                "device.sleep_backward_us": MICRO_BATCH * self.backward_us}

    def simulated_ms(self, options, scenario):
        def text(numbers):
            return ",".join(map(str, numbers))
        return float(output_of(options.rate, WORKERS, self.samples, text(self.rows), text(self.blocks), self.forward_us,
                               self.backward_us, WARM_UP, options.steps, scenario, text(self.workers)))


def print_cells(options):
    misses = []
    print(f"milliseconds a step, times {options.faster} times shorter than the profile's: measured (range), simulated")
    for samples in options.cells:
        cell = Cell(options, samples)
        levels = "; ".join(f"{rows} samples, {blocks} blocks ({rounding:+.1%}), {workers} workers" for
                           rows, blocks, rounding, workers in zip(cell.rows, cell.blocks, cell.rounding, cell.workers))
        print(f"{samples} samples: {levels}", flush=True)
        for name, scenario in [("H0", "H0"), ("H3", f"H3 sleep={2 * cell.data_us:.0f}"),
                               ("H4", f"H4 sleep={6 * cell.data_us:.0f} probability=0.1 seed=1")]:
            times = [step_ms(options.skein, options.steps, cell.words(), scenario) for _ in range(options.rounds)]
            median, simulated = statistics.median(times), cell.simulated_ms(options, scenario)
            off = simulated / median - 1
            print(f"  {name}  {median:8.0f} ({min(times):.0f}-{max(times):.0f}) {simulated:8.0f} {off:+6.1%}", flush=True)
            if abs(off) > OFF_MAX:
                misses.append(f"{samples} samples, {name}")
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
    parser.add_argument("--fela", help="build/release/bench/fela: cells of its table, instead")
    parser.add_argument("--profile", help="layers with their times (docs/profile.md) in place of VGG-19")
    parser.add_argument("--cells", type=int, nargs="+", default=[64, 256, 512], help="samples of a step")
    parser.add_argument("--faster", type=float, default=4)
    options = parser.parse_args()
    if options.fela:
        print_cells(options)
    elif options.server:
        print_server(options)
    else:
        print_scenarios(options)


main()
