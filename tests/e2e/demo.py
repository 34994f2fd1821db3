#!/usr/bin/env python3
"""The demo tells its whole story without a terminal, and leaves the terminal as it was."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import Program  # noqa: E402

SLOWNESS = int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
SECONDS = 12 * SLOWNESS
ROWS, PIPELINES = 24, 80
LIMIT_SECONDS = 2.0 + 1.0 * SLOWNESS  # The promise, and what a loaded machine takes on top.
SMALLER = ["--training.seq_len", "64"]
STOPPED, KILLED = 75, 130


def plain(program):
    start = time.monotonic()
    result = program.run("demo", "--seconds", str(SECONDS), "--keep", "kept", *SMALLER,
                         timeout=SECONDS + 60 * SLOWNESS)
    took = time.monotonic() - start
    program.expect("the demo ends well", result.returncode == 0,
                   f"{took:.1f} s {result.stderr.strip()[-200:]}")
    text = result.stdout
    if result.returncode != 0:
        print(text[-3000:])
    program.expect("lines have no escape codes", "\033" not in text)
    first = re.search(r"^(\d+):(\d+)  step \d+", text, re.M)
    program.expect("training is seen within 20 seconds",
                   first and int(first[1]) * 60 + int(first[2]) < 20 * SLOWNESS,
                   first and first[0])
    plans = re.findall(r"plan \d+: ([\d +]+) layers on ([w\d ]+?),", text)
    teams = [set(names.split()) for _, names in plans]
    lost = re.search(r"killing (w\d) with SIGKILL", text)
    without = [team for team in teams if lost and lost[1] not in team and "w5" not in team]
    program.expect("plans are told: without the killed worker, and with the new one",
                   lost and lost[1] in teams[0] and without and "w5" in teams[-1], plans)
    shares = [int(share) for share in plans[0][0].split("+")] if plans else [0]
    program.expect("the first plan is uneven", max(shares) > min(shares), shares)
    program.expect("its gain is predicted", re.search(r"predicted \d\.\d\dx an even split", text))
    recovery = re.search(r"killing w(\d) with SIGKILL[\s\S]*w\1 lost at step[\s\S]*"
                         r"w\1 killed: step \d+ committed \d+\.\d s later, "
                         r"(no step lost|1 step done again)\n", text)
    program.expect("the kill, the loss and the recovery are told", recovery,
                   re.findall(r".*(?:lost|again).*", text))
    program.expect("the new worker joins", "w5 joined" in text)
    program.expect("a recorded step is drawn", "what each worker did in step" in text)
    sample = text.split("What the model writes", 1)[-1]
    program.expect("text is drawn", "And the LORD said" in sample and len(sample) > 250)

    folder = os.path.realpath(os.path.join(program.folder, "kept", "latest"))
    program.expect("the run is where it was to be kept", folder in sample)
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        steps = [entry["step"] for entry in map(json.loads, file) if entry["kind"] == "step"]
    # Killed before the copy of its last step had arrived, it takes that step with it.
    again = [step for step, following in zip(steps, steps[1:]) if following == step]
    program.expect("every step is committed once, but for the one that is done again",
                   sorted(set(steps)) == list(range(1, steps[-1] + 1)) and
                   len(steps) == steps[-1] + len(again) and
                   recovery and len(again) == (recovery[2] != "no step lost"),
                   f"{len(steps)} steps, again {again}")
    for name in ("report.html", "traces/trace.json", "events.jsonl", "plan.txt",
                 "logs/progress.log", "logs/worker-5.log", "checkpoint/latest"):
        program.expect(f"the run leaves {name}", os.path.exists(os.path.join(folder, name)))


def in_terminal(program):
    """Ctrl-C while the screen is drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, PIPELINES, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen([program.skein, "demo", *SMALLER], cwd=program.folder,
                               stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
                               env=environment)
    output, told = b"", None
    deadline = time.monotonic() + 60 * SLOWNESS
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            output += os.read(ours, 1 << 16)
        if told is None and re.search(rb"step [1-9]\d", output):
            process.send_signal(signal.SIGINT)
            told = time.monotonic()
        if process.poll() is not None and not select.select([ours], [], [], 0)[0]:
            break
    took = time.monotonic() - (told or 0)
    if process.poll() is None:
        process.kill()
        process.wait()
    program.expect("Ctrl-C ends the demo in time",
                   took < LIMIT_SECONDS and process.returncode in (STOPPED, KILLED),
                   f"{took:.1f} s, code {process.returncode}")
    text = output.decode().replace("\r", "")
    frames = text.split("\033[?1049h")[-1].split("\033[?1049l")[0].split("\033[H")[1:]
    lines = [[re.sub("\033\\[[0-9;?]*[A-Za-z]", "", line) for line in frame.split("\n")]
             for frame in frames]
    program.expect("frames fit the terminal",
                   frames and all(len(frame) <= ROWS and max(map(len, frame)) <= PIPELINES
                                  for frame in lines), f"{len(frames)} frames")
    program.expect("NO_COLOR is respected", not re.search("\033\\[[0-9;]*[1-9][0-9;]*m", text))
    program.expect("the terminal is as it was", "\033[?25h" in text.split("\033[H")[-1] and
                   "\033[?1049l" in text and termios.tcgetattr(theirs) == before)


def main():
    program = Program()
    plain(program)
    in_terminal(program)
    program.finish()


main()
