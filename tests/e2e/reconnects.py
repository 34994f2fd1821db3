#!/usr/bin/env python3
"""A worker whose coordinator is gone connects anew, ever more rarely, and gives up in the end: that
somebody accepts its connections is no coordinator."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from between import Between  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import Program  # noqa: E402

PATIENCE_SECONDS = 9
JOB = ["--training.steps", "100000", "--device.speed", "0.25",
       "--elastic.coordinator_timeout_seconds", str(PATIENCE_SECONDS)]


def main():
    program = Program()
    run = ElasticRun(program, "reconnects", 0,
                     "--parallelism.pipeline_parallel_degree", "2", *JOB, apart=True, waits_for=2)
    betweens = [Between(run.address(), closes) for closes in (True, False)]
    workers = [run.spawn("worker", "--join", each.address) for each in betweens]
    run.wait_for_step(2)
    run.coordinator.kill()
    started = [each.take_over() for each in betweens]
    took = []
    for worker, start in zip(workers, started):
        try:
            worker.wait(timeout=PATIENCE_SECONDS * 2)
        except subprocess.TimeoutExpired:
            worker.kill()
        took.append(time.monotonic() - start)
    closing, silent = betweens
    late = [each for each in closing.accepted[10:]]
    program.expect("less than one connection a second after the first ten",
                   len(late) <= PATIENCE_SECONDS and 3 < len(closing.accepted) < 25,
                   f"{len(closing.accepted)} together")
    program.expect("somebody who does not answer is asked rarely", len(silent.accepted) < 12,
                   f"{len(silent.accepted)} connections")
    for worker, seconds, who in zip(workers, took, ("closes", "says nothing")):
        program.expect(f"where somebody accepts and {who}, the worker gives up in time",
                       worker.returncode not in (0, -9) and
                       PATIENCE_SECONDS * 0.5 < seconds < PATIENCE_SECONDS * 1.8,
                       f"exit {worker.returncode} after {seconds:.1f} s")
    run.finish()
    program.finish()


main()
