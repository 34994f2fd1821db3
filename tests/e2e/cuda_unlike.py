#!/usr/bin/env python3
"""One GPU among processors: workers that differ are measured, planned for and trained with, and the
GPU may be lost or too small.  cuda_unlike.py SKEIN REFERENCE PLUGIN
PLUGIN is one with emulated GPUs (tests/gpu/emulated_cuda), which are slow: the processors are slowed
down to let the planner give them work."""
import concurrent.futures
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import Program  # noqa: E402

STEPS = 6
WAIT_SECONDS = 500  # Enough on a machine on which others work, too.
TOLERANCE = 1e-5
SMALL = ["--training.seq_len", "16", "--model.n_layer", "4", "--model.n_embd", "32",
         "--training.steps", str(STEPS), "--validation.batches", "0",
         "--device.precision", "float32", "--elastic.heartbeat_timeout_seconds", "20",
         "--comm.init_timeout_seconds", str(WAIT_SECONDS)]
SLOW = ["--device", "cpu", "--speed", "0.02"]
SLOWER, SLOWEST = (["--device", "cpu", "--speed", speed] for speed in ("0.002", "0.001"))


def speeds_of(run):
    """The speed of each device of the cluster that was measured, by its name."""
    with open(os.path.join(run.folder(), "cluster.toml"), encoding="utf-8") as file:
        text = file.read()
    names = re.findall(r'^name = "(w\d+ .*)"', text, re.M)
    return dict(zip(names, map(float, re.findall(r"^ *speed = (\S+)", text, re.M))))


def speeds_with_layers(run, speeds, has):
    """The speeds of the workers that have a stage in the plan that was used, or of those without."""
    text = run.journal("SELECT plan FROM plans ORDER BY generation DESC LIMIT 1")[0][0]
    working = set(re.findall(r"@(w\d+)", text))
    return [speed for name, speed in speeds.items() if (name.split()[0] in working) == has]


def gpu_worker(run):
    """Its number, once it has told what it computes on."""
    told = [each for each in run.events("worker.device") if "emulated" in each["device"]]
    return told[0]["worker"] if told else None


def agrees(program, run, reference, claim):
    worst, tensor = worst_relative(read_model(newest(run.folder())), reference)
    program.expect(claim, worst <= TOLERANCE, f"{worst:.1e} {tensor}")


def check_plan(program, reference, gpu):
    run = ElasticRun(program, "unlike", 3, *SMALL, "--parallelism.pipeline_parallel_degree", "auto",
                     unlike=[(["--device", "cuda"], gpu), (SLOWER, {}), (SLOWEST, {})])
    try:
        code = run.finish(WAIT_SECONDS)
        program.expect("a GPU and two processors train with the plan that was made for them",
                       code == 0 and run.steps_done() == STEPS, run.errors())
        speeds = speeds_of(run)
        by_kind = {kind: [speed for name, speed in speeds.items() if kind in name]
                   for kind in ("emulated", "0.002", "0.001")}
        # Twice as fast, but what interrupts a measurement is stretched like the work is.
        program.expect("which are measured as what they are", len(speeds) == 3 and
                       all(len(each) == 1 for each in by_kind.values()) and
                       by_kind["0.002"][0] > by_kind["0.001"][0], speeds)
        # An emulated GPU is a host's thread: on a busy machine it may be the slowest of all.
        used, left_out = (speeds_with_layers(run, speeds, has) for has in (True, False))
        program.expect("the plan has layers for whom it measured as the fastest",
                       used and max(left_out, default=0) <= min(used), run.events("plan.made"))
        agrees(program, run, reference, "and the weights are those of one process")
    finally:
        run.end()


def check_loss(program, reference, gpu):
    lost = os.path.join(program.folder, "lost")
    run = ElasticRun(program, "loss", 3, *SMALL, "--parallelism.pipeline_parallel_degree", "3",
                     unlike=[(["--device", "cuda"], dict(gpu, EMULATED_CUDA_LOST_FILE=lost)),
                             (SLOW, {}), (SLOW, {})])
    try:
        run.wait_for_step(2, WAIT_SECONDS)
        with open(lost, "w", encoding="utf-8"):
            pass
        code = run.finish(WAIT_SECONDS)
        events = run.events("worker.lost")
        program.expect("a GPU that is lost is a worker that is lost", len(events) == 1 and
                       events[0]["worker"] == gpu_worker(run) and
                       "the CUDA device is lost" in events[0]["reason"], events)
        program.expect("of which the worker's end says the same",
                       [each.returncode for each in run.workers] == [1, 0, 0] and
                       "start the worker again" in run.errors(), run.errors())
        program.expect("the others go on to the end", code == 0 and run.steps_done() == STEPS,
                       run.errors())
        complaints = [row[0] for row in run.journal("SELECT step FROM commits ORDER BY step")]
        program.expect("each step is committed once", complaints == list(range(STEPS)), complaints)
        agrees(program, run, reference, "with the weights of one process")
    finally:
        run.end()


def check_memory(program, gpu):
    """Room for the products' workspace of 32 MiB, and hardly more."""
    result, _ = program.train("memory", *SMALL, "--workers", "1", "--device.type", "cuda",
                              "--device.memory_limit_mb", "33", env=dict(os.environ, **gpu))
    said = result.stderr.strip()
    program.expect("a stage that does not fit ends the run with all sizes", result.returncode == 1 and
                   re.search(r"no device memory for \d+ bytes: \d+ are in use, 34603008 are the "
                             r"limit, \d+ were the most so far.*the plan counts on \d+ bytes for "
                             r"the stage of layers 0\.\.6", said), said)


def main():
    program = Program()
    gpu = {"SKEIN_CUDA_PLUGIN": os.path.abspath(sys.argv[3])}
    reference = read_model(newest(program.run_reference("reference", *SMALL) + "/final"))
    # Slowed devices sleep, so all runs fit side by side.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        checks = [pool.submit(check_plan, program, reference, gpu),
                  pool.submit(check_loss, program, reference, gpu),
                  pool.submit(check_memory, program, gpu)]
    for check in checks:
        check.result()
    program.finish()


main()
