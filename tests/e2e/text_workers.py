#!/usr/bin/env python3
"""Text that several worker processes draw together is that of one process; who is lost, late or wrong
is named in one line. text_workers.py SKEIN REFERENCE [PLUGIN]"""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import Program  # noqa: E402
from stranger import Stranger  # noqa: E402

TROUBLE, USAGE, BAD_DATA = 1, 2, 3
PATIENCE = 60
SILENCE_SECONDS = 10  # elastic.heartbeat_timeout_seconds


class Drawing:
    """A process that draws text with workers."""

    def __init__(self, program, words, workers, **options):
        self.program = program
        self.process = subprocess.Popen(
            [program.skein, *words, "--listen", "127.0.0.1:0", "--workers", str(workers)],
            cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.waits = self.process.stderr.readline()
        self.address = self.waits.split()[-1]
        self.workers = []

    def join(self, *words, **options):
        self.workers.append(subprocess.Popen(
            [self.program.skein, "worker", "--join", self.address, *words], cwd=self.program.folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options))
        return self.workers[-1]

    def finish(self):
        """What it has said, and the exit codes of its workers."""
        try:
            out, errors = self.process.communicate(timeout=PATIENCE)
            codes = [worker.wait(timeout=PATIENCE) for worker in self.workers]
        finally:
            for each in [self.process, *self.workers]:
                each.kill()
        return out, errors, codes


def together(program, words, expected):
    for count in (1, 2, 3):
        drawing = Drawing(program, words, count)
        for _ in range(count):
            drawing.join()
        out, errors, codes = drawing.finish()
        program.expect(f"{count} workers draw the text of one process and end with it",
                       out == expected and codes == [0] * count and
                       drawing.process.returncode == 0 and
                       len(re.findall(r"\d on w\d", errors)) == count,
                       f"{drawing.waits.strip()} {errors.strip()} {codes}")
    if len(sys.argv) <= 3:
        return
    drawing = Drawing(program, [*words, "--precision", "float32"], 2)
    emulated = dict(os.environ, SKEIN_CUDA_PLUGIN=os.path.abspath(sys.argv[3]))
    drawing.join("--device", "cuda", env=emulated)
    drawing.join()
    out, errors, codes = drawing.finish()
    program.expect("so do a GPU and a processor, with float32 numbers", out == expected and
                   codes == [0, 0], errors.strip())


def long_prompt(program):
    """More positions than may wait for their step; from a folder in Hugging Face's form."""
    _, run = program.train("long", "--training.steps", "1", "--model.positions", "700",
                           "--model.initializer_range", "0.5", "--model.name", "llama")
    program.run("export", run, "exported")
    prompt = " ".join(str(n * n % 251) for n in range(600))
    words = ["generate", "exported", "--ids", "--prompt", prompt, "--tokens", "20",
             "--temperature", "0"]
    expected = program.run(*words).stdout
    drawing = Drawing(program, words, 3)
    for _ in range(3):
        drawing.join()
    out, errors, _ = drawing.finish()
    program.expect("a long prompt gives the same text", out == expected and
                   len(set(expected.split())) > 5, errors.strip())


def leaving(program, words):
    """Before all are there a worker may go, and another one takes its place."""
    expected = program.run(*words).stdout
    drawing = Drawing(program, words, 2)
    first = drawing.join()
    joined = drawing.process.stderr.readline()
    first.send_signal(signal.SIGTERM)
    code = first.wait(timeout=PATIENCE)
    drawing.join()
    drawing.join()
    out, errors, codes = drawing.finish()
    # It may not have heard yet that it has joined.
    program.expect("a worker that leaves before all are there is replaced", code in (0, 130) and
                   out == expected and codes[1:] == [0, 0] and "w1 (cpu x1 on " in joined and
                   "has joined, 1 of 2" in joined, f"{code} {codes} {joined} {errors.strip()}")


def lost(program, words):
    drawing = Drawing(program, [*words[:-2], "--tokens", "1000000"], 2)
    drawing.join()
    drawing.join()
    drawn = drawing.process.stdout.read(200)  # The text has begun.
    late = subprocess.run([program.skein, "worker", "--join", drawing.address], text=True,
                          capture_output=True, timeout=PATIENCE, check=False)
    program.expect("a worker that comes too late is told so", late.returncode == USAGE and
                   "its 2 workers already" in late.stderr and late.stderr.count("\n") == 1,
                   late.stderr.strip())
    drawing.workers[1].send_signal(signal.SIGKILL)
    _, errors, codes = drawing.finish()
    lines = errors.strip().splitlines()
    program.expect("a worker that is lost ends the text with one line, which names it",
                   len(drawn) == 200 and drawing.process.returncode == TROUBLE and
                   len(lines) == 4 and
                   re.search(r"w\d \(cpu x1 on .*\) is lost, and the text ends here", lines[3]),
                   errors.strip())
    program.expect("and the other one leaves", codes[0] == 0, str(codes))


def deserted(program, words):
    """The process that draws is killed."""
    drawing = Drawing(program, [*words[:-2], "--tokens", "1000000"], 1)
    worker = drawing.join()
    drawing.process.stdout.read(100)
    begin = time.monotonic()
    drawing.process.kill()
    code = worker.wait(timeout=PATIENCE)
    said = worker.stderr.read()
    program.expect("a worker whose text has gone ends, and says so", code == TROUBLE and
                   "lost the coordinator" in said and time.monotonic() - begin < 20, said.strip())
    drawing.finish()


def paused(program, words):
    """One of two that draw is stopped for longer than silence may last: here a worker, there who draws."""
    drawings = [Drawing(program, [*words[:-2], "--tokens", "1000000"], 1) for _ in range(2)]
    for drawing in drawings:
        drawing.join()
        drawing.process.stdout.read(100)
    stopped = [drawings[0].workers[0], drawings[1].process]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    time.sleep(SILENCE_SECONDS + 2)
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    _, errors, _ = drawings[0].finish()
    said = drawings[0].workers[0].stderr.read()
    program.expect("a worker that was paused is not told of runs", "is lost" in errors and
                   "there is no run" not in said, f"{errors.strip()} {said.strip()}")
    _, errors, _ = drawings[1].finish()
    program.expect("who draws says that it was paused itself", "is lost" in errors and
                   "after this process was paused for" in errors, errors.strip())


def strange(program, words, run):
    drawing = Drawing(program, words, 1)
    stranger = Stranger(drawing.address, "viewer")
    program.expect("who asks for a run's status is told that there is none",
                   "there is no run" in stranger.hear())
    stranger = Stranger(drawing.address)
    stranger.say("textReady = void")
    stranger.say('join = (hostName = "h", processId = 1, dataAddress = "127.0.0.1:1", '
                 'device = "cpu x1", speed = 1, run = "small-7")')
    program.expect("a worker of a run is refused", "serves run small-7" in stranger.hear())
    with open(os.path.join(run, "COMPLETE"), "a", encoding="utf-8") as file:
        file.write("\n")
    drawing.join()
    _, errors, codes = drawing.finish()
    lines = errors.strip().splitlines()
    program.expect("a worker whose folder has another model says so", codes == [USAGE] and
                   drawing.process.returncode == BAD_DATA and "is another model here" in lines[-1],
                   errors.strip())


def refusals(program, words):
    for claim, more, said in (
            ("--listen without --workers", ["--listen", "127.0.0.1:0"], "--workers"),
            ("--workers without --listen", ["--workers", "2"], "--listen"),
            ("--devices beside them", ["--listen", "127.0.0.1:0", "--workers", "2", "--devices",
                                       "cpu,cpu"], "--devices cpu,cpu"),
            ("an address that is not loopback", ["--listen", "0.0.0.0:0", "--workers", "1"],
             "--insecure"),
            ("an address that is none", ["--listen", "here", "--workers", "1"], "here")):
        program.expect_refusal(f"{claim} is refused", USAGE, [said], program.run(*words, *more))


def main():
    program = Program()
    trained, run = program.train("drawn", "--training.steps", "1", "--model.initializer_range",
                                 "0.5")
    program.expect("a run is trained", trained.returncode == 0, trained.stderr.strip())
    folder = os.path.join(run, "checkpoint", "step-00000001")
    # Past the window, so that the context moves on.
    words = ["generate", run, "--ids", "--prompt", "84 104 101", "--temperature", "0", "--tokens",
             "70"]
    expected = program.run(*words).stdout
    program.expect("the model says something else behind every context",
                   len(set(expected.split())) > 10, expected)
    refusals(program, words)
    together(program, words, expected)
    long_prompt(program)
    leaving(program, words)
    lost(program, words)
    deserted(program, words)
    paused(program, words)
    strange(program, words, folder)
    program.finish()


main()
