#!/usr/bin/env python3
"""A worker whose coordinator is gone connects anew, ever more rarely, and gives up in the end: that
somebody accepts its connections is no coordinator."""
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun  # noqa: E402
from running import Program  # noqa: E402

PATIENCE_SECONDS = 9
JOB = ["--training.steps", "100000", "--device.speed", "0.25",
       "--elastic.coordinator_timeout_seconds", str(PATIENCE_SECONDS)]


class Between:
    """Stands between workers and their coordinator, until it takes its place. `answers`: then it
    closes what it has accepted; else it keeps it and says nothing."""

    def __init__(self, address, closes):
        host, port = address.rsplit(":", 1)
        self.upstream = (host, int(port))
        self.closes = closes
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.is_alone = False
        self.accepted = []  # When, since it is alone.
        self.kept = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.server.accept()
            if not self.is_alone:
                other = socket.create_connection(self.upstream)
                self.kept += [client, other]
                for pair in ((client, other), (other, client)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()
                continue
            self.accepted.append(time.monotonic())
            client.close() if self.closes else self.kept.append(client)

    def take_over(self):
        self.is_alone = True
        for each in self.kept:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        return time.monotonic()


def pass_on(source, target):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    except OSError:
        pass


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
