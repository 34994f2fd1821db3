#!/usr/bin/env python3
"""Ctrl-C at any time leaves a usable checkpoint; with short steps, or in the first one, every process
ends within two seconds. And a run waits for nobody who reads what it prints."""
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun  # noqa: E402
from running import SMALL_JOB, Program  # noqa: E402

# Sanitizers make steps slower, and a stopped run waits for the one in progress: they are smaller.
SLOWNESS = int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
LIMIT_SECONDS = 2.0  # The promise, with the time a loaded machine takes to tell us on top.
SLACK_SECONDS = 1.0 * SLOWNESS
STOPPED, KILLED = 75, 130


def descendants(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def main():
    program = Program()
    random.seed(1)
    for trial in range(8):
        dump = f"run{trial}"
        # Steps of about 60 ms, so that stops fall between and into them.
        batch = 64 // SLOWNESS
        process = subprocess.Popen(
            [program.skein, "train", SMALL_JOB, "--job.dump_folder", dump, "--workers", "2",
             "--training.steps", "100000", "--checkpoint.interval", "5",
             "--training.global_batch_size", str(batch)],
            cwd=program.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # The first ones hit the start, the rest training.
        delay = 0.05 * 2 ** trial if trial < 4 else random.uniform(0.5, 2)
        time.sleep(delay * SLOWNESS)
        children = descendants(process.pid)
        start = time.monotonic()
        # SIGHUP: the terminal is gone.
        process.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[trial % 3])
        _, errors = process.communicate(timeout=30)
        took = time.monotonic() - start
        program.expect(f"trial {trial}: ends in time", took <= LIMIT_SECONDS + SLACK_SECONDS,
                       f"{took:.2f} s, code {process.returncode}, {len(children)} workers")
        program.expect(f"trial {trial}: no orphan", not any(is_alive(pid) for pid in children))
        runs = os.listdir(os.path.join(program.folder, dump)) if os.path.exists(
            os.path.join(program.folder, dump)) else []
        started = process.returncode == STOPPED and "latest" in runs
        folder = os.path.join(program.folder, dump, "latest")
        if started and os.path.exists(os.path.join(folder, "checkpoint", "latest")):
            verify = program.run("verify", folder)
            program.expect(f"trial {trial}: the checkpoint is whole", verify.returncode == 0,
                           verify.stdout.strip()[-60:] or errors.strip())
        else:
            program.expect(f"trial {trial}: stopped before the first step",
                           process.returncode in (KILLED, -signal.SIGINT, -signal.SIGTERM),
                           errors.strip()[-100:])
    long_step(program)
    kill_coordinator(program)
    second_signal(program)
    unread(program)
    program.finish()


def unread(program):
    """Both streams go into one pipe of a page, and nobody reads until the run is complete."""
    steps = 40
    process = subprocess.Popen(
        [program.skein, "train", SMALL_JOB, "--job.dump_folder", "unread", "--workers", "2",
         "--log-format", "json", "--training.steps", str(steps), "--validation.batches", "0"],
        cwd=program.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    folder = os.path.join(program.folder, "unread", "latest")
    saved = os.path.join(folder, "checkpoint", f"step-{steps:08}", "COMPLETE")
    limit = time.monotonic() + 60 * SLOWNESS
    while not os.path.exists(saved) and time.monotonic() < limit:
        time.sleep(0.05)
    program.expect("a run whose output nobody reads goes on to its last checkpoint",
                   os.path.exists(saved))
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        told = [json.loads(line) for line in file]
    program.expect("its metrics are complete", [each["step"] for each in told][-1:] == [steps],
                   f"{len(told)} lines")
    printed, _ = process.communicate(timeout=30)
    lines = [json.loads(line) for line in printed.decode().splitlines() if line.startswith("{")]
    program.expect("whoever reads late is told all of it",
                   [each["step"] for each in lines if each.get("kind") == "step"] ==
                   list(range(1, steps + 1)) and lines[-1]["kind"] == "summary",
                   f"{len(printed)} bytes, code {process.returncode}")
    program.expect("the run was none the worse for it", process.returncode == 0)


def long_step(program):
    """The first step, of which nobody knows how long it takes, is given up: nothing is there to save."""
    process = subprocess.Popen(
        [program.skein, "train", SMALL_JOB, "--device.type", "sleep", "--workers", "2",
         "--device.sleep_forward_us", "5000000"], cwd=program.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "training starts" in line:
            break
    children = descendants(process.pid)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    took = time.monotonic() - start
    program.expect("a long step is given up in time",
                   took <= LIMIT_SECONDS + SLACK_SECONDS and process.returncode != 0 and
                   len(children) == 2 and not any(map(is_alive, children)), f"{took:.2f} s")


def second_signal(program):
    """A worker in the middle of a step, with the gradients of others on their way, ends at once. Steps
    take about a second, of which the fast worker waits for most: what the first signal asks for cannot
    have been granted when the second comes."""
    run = ElasticRun(program, "second", 3, "--training.steps", "100000", "--device.type", "sleep",
                     "--device.sleep_forward_us", "24000", "--device.sleep_backward_us", "48000",
                     "--device.speeds", "[1.0,0.25,1.0]", "--training.micro_batch_size", "6",
                     "--training.global_batch_size", "18", "--parallelism.pipeline_parallel_degree",
                     "1", "--parallelism.data_parallel_replicate_degree", "3", apart=True)
    try:
        run.wait_for_step(3)
        time.sleep(0.12)
        for _ in range(2):
            for worker in run.workers[:2]:
                worker.send_signal(signal.SIGTERM)
            time.sleep(0.6)  # Two that come together are one.
        codes = [worker.wait(timeout=10) for worker in run.workers[:2]]
        program.expect("the second signal ends workers at once", codes == [KILLED, KILLED], codes)
    finally:
        run.end()


def kill_coordinator(program):
    process = subprocess.Popen([program.skein, "train", SMALL_JOB, "--workers", "2",
                                "--training.steps", "100000"], cwd=program.folder,
                               stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("step"):
            break
    children = descendants(process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + LIMIT_SECONDS + SLACK_SECONDS
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    program.expect("kill -9 of the coordinator leaves no orphan",
                   len(children) == 2 and not any(map(is_alive, children)))


if __name__ == "__main__":
    main()
