#!/usr/bin/env python3
"""GPUs in a job: which one a worker takes, and what it does where that is nearly full.  cuda_workers.py SKEIN PLUGIN
PLUGIN is one with emulated GPUs (tests/gpu/emulated_cuda)."""
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

TINY = ["--training.seq_len", "8", "--model.n_layer", "2", "--model.n_embd", "16",
        "--training.global_batch_size", "8", "--validation.batches", "0"]
GPU = ["--device.type", "cuda", "--device.precision", "float32"]


def gpus_of(run):
    """What each worker of a run says that it computes on, by the number of its log."""
    said = {}
    for path in glob.glob(os.path.join(run, "logs", "worker-*.log")):
        with open(path, encoding="utf-8") as file:
            found = re.search(r"local rank (\d+) computes on (.*)", file.read())
        said[int(re.search(r"worker-(\d+)", path)[1])] = found.groups() if found else None
    return [said[number] for number in sorted(said)]


def check_choice(program, environment):
    """Three workers on a machine with two GPUs."""
    first, second = "cuda:0 emulated (0000:10:00.0)", "cuda:1 emulated (0000:11:00.0)"
    two = dict(environment, EMULATED_CUDA_GPUS="2")
    wanted = [("the machine's workers take its GPUs in turn", two, [],
               [("0", first), ("1", second), ("2", first)]),
              ("only those that CUDA_VISIBLE_DEVICES leaves", dict(two, CUDA_VISIBLE_DEVICES="1"),
               [], [(str(rank), "cuda:0 emulated (0000:11:00.0)") for rank in range(3)]),
              ("or all the one that device.ordinal names", two, ["--device.ordinal", "1"],
               [(str(rank), second) for rank in range(3)])]
    for claim, env, words, gpus in wanted:
        result, run = program.train("choice", *TINY, *GPU, *words, "--training.steps", "1",
                                    "--workers", "3", env=env)
        program.expect(claim, result.returncode == 0 and gpus_of(run) == gpus,
                       result.stderr.strip() or gpus_of(run))
    result, run = program.train("absent", *TINY, *GPU, "--device.ordinal", "2",
                                "--training.steps", "1", "--workers", "1", env=two)
    with open(os.path.join(run, "logs", "worker-1.log"), encoding="utf-8") as file:
        said = file.read()
    program.expect("one that is not there is named, with how many are",
                   "there is no GPU 2: the driver shows 2" in said, said.strip())
    _, run = program.train("small", *TINY, *GPU, "--device.memory_limit_mb", "30", "--training.steps", "1",
                           "--workers", "1", env=two)
    with open(os.path.join(run, "logs", "worker-1.log"), encoding="utf-8") as file:
        said = file.read()
    program.expect("one whose limit is too small is not said to be missing",
                   'device.type = "cuda": a limit of 31457280 bytes' in said and "no CUDA device" not in said,
                   said.strip())


def check_status(program, environment):
    """The same in `skein status`, the run's events and its trace."""
    os.environ.update(environment, EMULATED_CUDA_GPUS="2", LOCAL_RANK="1")
    run = ElasticRun(program, "status", 1, *TINY, *GPU, "--training.steps", "100000",
                     "--profiling.profile_freq", "2", apart=True)
    try:
        told = wait_until(lambda: run.events("worker.device"), 20)
        gpu = "cuda:1 emulated (0000:11:00.0)"
        program.expect("a worker started by hand goes by LOCAL_RANK, as its event says",
                       told and told[0]["device"] == gpu, told)
        run.wait_for_step(3, 200)
        status = json.loads(program.run("status", run.address(), "--json").stdout)
        program.expect("skein status shows it", [each["device"] for each in status["workers"]] ==
                       [gpu], status["workers"])
        table = program.run("status", run.address()).stdout.splitlines()
        program.expect("in pipeline replicas", table[1].index("steps") == table[2].index(gpu) + len(gpu) + 1,
                       table)
        run.coordinator.terminate()
        run.finish()
        with open(os.path.join(run.folder(), "traces", "trace.json"), encoding="utf-8") as file:
            names = [event["args"]["name"] for event in json.load(file)["traceEvents"]
                     if event["name"] == "process_name"]
        program.expect("and so does the trace", names == ["w1 stage 0 on " + gpu], names)
    finally:
        run.end()
        os.environ.pop("LOCAL_RANK")


FULL = ["--training.seq_len", "8", "--model.n_layer", "6", "--model.n_embd", "128", "--training.steps", "100000",
        "--training.global_batch_size", "2", "--training.micro_batch_size", "1", "--validation.batches", "0",
        "--parallelism.pipeline_parallel_degree", "3", "--device.memory_limit_mb", "52"]


def check_full(program, environment):
    """Two stages of three, where each GPU has room for one plan's models, but not for those of two plans."""
    gpus = [(["--device", "cuda"], dict(environment, EMULATED_CUDA_GPUS="3", LOCAL_RANK=str(rank))) for rank in range(3)]
    run = ElasticRun(program, "full", 3, *FULL, unlike=gpus)
    try:
        run.wait_for_step(2, 60)
        subprocess.run([program.skein, "drain", run.address(), "--worker", "2"], check=True, capture_output=True)
        run.wait_for_event("worker.left", 60)
        run.wait_for_step(run.steps_done() + 2, 60)
        program.expect("a plan takes the place of another on nearly full GPUs", not run.events("worker.failed") and
                       not run.events("run.rolled_back"), run.events("worker.failed"))
    finally:
        run.end()


def main():
    program = Program()
    environment = dict(os.environ, SKEIN_CUDA_PLUGIN=os.path.abspath(sys.argv[2]))
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    check_choice(program, environment)
    check_status(program, environment)
    check_full(program, environment)
    program.finish()


main()
