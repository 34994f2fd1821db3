#!/usr/bin/env python3
"""A worker that a cloud gives notice leaves in mid-run with code 0, and no step is done again."""
import concurrent.futures
import contextlib
import glob
import http.server
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SMALL_JOB, Program  # noqa: E402

STEPS = 150
STEP_OF_NOTICE = 20
# Sleeping devices, so that steps take their time on any machine and the notice comes in mid-run. Each
# worker has the only copy of its layers: what the one that leaves does not hand over would be lost.
JOB = ["--device.type", "sleep", "--device.sleep_forward_us", "4000",
       "--device.sleep_backward_us", "8000", "--parallelism.layout", "2,1,1",
       "--checkpoint.no-enable", "--training.steps", str(STEPS)]
LIMIT_SECONDS = 60 * int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))


class FakeCloud(http.server.BaseHTTPRequestHandler):
    """What the metadata services of the three clouds answer; `server.notice` is whether it is time."""
    TOKEN = "AQAEA-token=="

    def reply(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        good = (self.path == "/latest/api/token" and
                int(self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", 0)) > 0)
        self.reply(*((200, self.TOKEN) if good and self.server.cloud == "aws" else (400,)))

    def do_GET(self):
        self.server.asked += 1
        answer = getattr(self, self.server.cloud)(self.path, self.server.notice)
        self.reply(*(answer or (404,)))

    def aws(self, path, notice):
        if self.headers.get("X-aws-ec2-metadata-token") != self.TOKEN:
            return (401,)
        if path == "/latest/meta-data/spot/instance-action" and notice:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
            return 200, json.dumps({"action": "terminate", "time": when})
        return None

    def gcp(self, path, notice):
        if self.headers.get("Metadata-Flavor") != "Google":
            return (403,)
        return {"/computeMetadata/v1/instance/preempted": (200, "TRUE" if notice else "FALSE"),
                "/computeMetadata/v1/instance/maintenance-event": (200, "NONE")}.get(path)

    def azure(self, path, notice):
        if self.headers.get("Metadata") != "true" or "api-version=" not in path:
            return (400,)
        if path.startswith("/metadata/instance/compute/name?"):
            return 200, self.server.vm
        if not path.startswith("/metadata/scheduledevents?"):
            return None
        when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
        event = {"EventId": "E", "EventType": "Preempt", "ResourceType": "VirtualMachine",
                 "Resources": ["set_0"], "EventStatus": "Scheduled", "NotBefore": when}
        # All machines of the set see the event.
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": [event] if notice else []})

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def fake_cloud(cloud, vm="set_0"):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeCloud)
    server.cloud, server.vm, server.notice, server.asked = cloud, vm, False, 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def wait_until(holds):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def leaving_events(run):
    events = lines_of(os.path.join(run, "events.jsonl"))
    return [event for event in events if event["event"] == "worker.leaving"]


def start(program, *words):
    return subprocess.Popen([program.skein, *words], cwd=program.folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_with(program, name, spot_words, give_notice):
    """Runs a coordinator and a worker for each entry of `spot_words`; `give_notice` comes in mid-run.
    Returns the ended processes, the coordinator first, and the run's folder."""
    coordinator = start(program, "coordinator", SMALL_JOB, "--listen", "127.0.0.1:0", "--workers",
                        str(len(spot_words)), "--job.dump_folder", name, "--quiet", *JOB)
    processes = [coordinator]
    try:
        pattern = os.path.join(program.folder, name, "*-*", "coordinator.address")
        if not wait_until(lambda: glob.glob(pattern)):
            raise TimeoutError("the coordinator does not start")
        run = os.path.dirname(glob.glob(pattern)[0])
        with open(os.path.join(run, "coordinator.address"), encoding="utf-8") as file:
            address = file.read().strip()
        processes += [start(program, "worker", "--join", address, *words) for words in spot_words]
        metrics = os.path.join(run, "metrics.jsonl")
        if not wait_until(lambda: len(lines_of(metrics)) >= STEP_OF_NOTICE):
            raise TimeoutError("training does not begin")
        give_notice(processes, run)
        for process in processes:
            process.output = process.communicate(timeout=LIMIT_SECONDS)
        return processes, run
    finally:
        for process in processes:
            process.kill()


def check_run(program, name, processes, run):
    program.expect(f"{name}: the run ends well", processes[0].returncode == 0,
                   processes[0].output[1].strip()[-200:])
    codes = [process.returncode for process in processes[1:]]
    program.expect(f"{name}: every worker ends with code 0", codes == [0] * len(codes), codes)
    steps = [line for line in lines_of(os.path.join(run, "metrics.jsonl")) if line["kind"] == "step"]
    program.expect(f"{name}: every step was reported once",
                   [line["step"] for line in steps] == list(range(1, STEPS + 1)), len(steps))
    redone = steps[-1]["goodput"]["redone"]
    program.expect(f"{name}: no time went into redone steps", redone == 0, redone)
    with contextlib.closing(sqlite3.connect(os.path.join(run, "journal.sqlite"))) as journal:
        rows = journal.execute("SELECT step, first_sample, sample_count, generation FROM commits "
                               "ORDER BY step").fetchall()
    consecutive = all(row[1] == last[1] + last[2] and row[0] == last[0] + 1
                      for last, row in zip(rows, rows[1:]))
    program.expect(f"{name}: the journal has each step and sample once",
                   len(rows) == STEPS and consecutive, len(rows))
    program.expect(f"{name}: the plan changed in mid-run", rows[0][3] < rows[-1][3])


def check_notice(program, cloud, word, reason):
    """One of three workers gets a notice; the others watch the same cloud on another machine."""
    with fake_cloud(cloud) as server, fake_cloud(cloud, "set_1") as other:
        def give_notice(processes, run):
            # On Azure the event of one machine is seen by all of the set.
            server.notice, other.notice = True, cloud == "azure"
            if cloud == "gcp":  # Its soft-off sends SIGTERM too, which only repeats the wish.
                wait_until(lambda: leaving_events(run))
                processes[1].send_signal(signal.SIGTERM)
        processes, run = run_with(
            program, word + "-" + cloud,
            [["--spot", word, "--spot-url", url] for url in (server.url, other.url, other.url)],
            give_notice)
        asked = other.asked
    name = f"--spot {word} on {cloud}"
    check_run(program, name, processes, run)
    said = [process.output[1] for process in processes[1:]]
    program.expect(f"{name}: the worker says why it leaves",
                   reason in said[0] and "leaving the run" in said[0], said[0].strip())
    program.expect(f"{name}: the others stay", said[1] + said[2] == "" and asked > 0,
                   said[1] + said[2])
    leaving = leaving_events(run)
    program.expect(f"{name}: the run's events have the reason",
                   len(leaving) == 1 and reason in leaving[0]["reason"], leaving)


def check_silence(program):
    """Nobody answers one worker, and another is answered only with the connection: both train on."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(fake_cloud("gcp"))
        nobody = server.url.rsplit(":", 1)[0] + ":1"
        hangs = stack.enter_context(silent_server())
        processes, run = run_with(
            program, "silence",
            [["--spot", "aws", "--spot-url", nobody], ["--spot", "azure", "--spot-url", hangs],
             ["--spot", "gcp", "--spot-url", server.url]],
            lambda *_: setattr(server, "notice", True))
    check_run(program, "silence", processes, run)
    for process, cloud in zip(processes[1:], ("aws", "azure")):
        lines = process.output[1].splitlines()
        program.expect(f"silence: one line of warning about {cloud}",
                       len(lines) == 1 and "warning" in lines[0] and cloud in lines[0], lines)


@contextlib.contextmanager
def silent_server():
    """Takes connections and says nothing."""
    server = http.server.HTTPServer(("127.0.0.1", 0), FakeCloud)
    yield f"http://127.0.0.1:{server.server_port}"
    server.server_close()


def check_words(program):
    for words in (["--spot", "ec2"], ["--spot", "aws", "--spot-url", "https://169.254.169.254"],
                  ["--spot", "gcp", "--spot-url", "http://metadata.google.internal"]):
        result = program.run("worker", "--join", "127.0.0.1:1", *words)
        program.expect(f"{' '.join(words)} is refused", result.returncode == 2 and
                       "--spot" in result.stderr, result.stderr.strip())


def main():
    program = Program()
    check_words(program)
    # Their devices sleep, so all runs fit side by side.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        checks = [
            pool.submit(check_notice, program, "aws", "aws",
                        "AWS is to terminate this machine in 1"),
            pool.submit(check_notice, program, "gcp", "gcp", "GCP preempts this machine in 30 s"),
            pool.submit(check_notice, program, "azure", "azure", "Azure evicts this machine in "),
            pool.submit(check_notice, program, "azure", "auto", "Azure evicts this machine in "),
            pool.submit(check_silence, program)]
    for check in checks:
        check.result()
    program.finish()


main()
