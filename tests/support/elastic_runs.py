"""Runs that faults are done to, and what must hold of them when they have ended."""
import atexit
import glob
import json
import os
import signal
import sqlite3
import subprocess
import time

from running import SMALL_JOB

# A lease that tests can wait for; with sanitizers everything takes its time.
LEASE_SECONDS = 2.0 if os.environ.get("SKEIN_TEST_SLOWNESS", "1") == "1" else 8.0
LEASE = ["--elastic.heartbeat_timeout_seconds", str(LEASE_SECONDS),
         "--elastic.heartbeat_interval_seconds", "0.5"]
# Devices that sleep most of the time: steps of some 20 ms that hardly take the processor.
PACE = ["--device.speed", "0.25"]
GLOBAL_BATCH = 16  # The global batch of the small job.

LAYOUTS = {  # Stages x replicas: the workers it needs, and how the job says it.
    "3x1": (3, ["--parallelism.pipeline_parallel_degree", "3"]),
    "4x1": (4, ["--parallelism.pipeline_parallel_degree", "4"]),
    "1x3": (3, ["--parallelism.pipeline_parallel_degree", "1",
                "--parallelism.data_parallel_replicate_degree", "3"]),
    "2x2": (4, ["--parallelism.pipeline_parallel_degree", "2",
                "--parallelism.data_parallel_replicate_degree", "2"]),
    "auto": (3, ["--parallelism.pipeline_parallel_degree", "auto"]),
}


def wait_until(holds, seconds, every=0.005):
    """The first value that is not false, or None when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(every)
    return None


def read_lines(path):
    """Whole lines of a file of JSON objects; the last one may still be written."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]
    except OSError:
        return []


def alive_with(word):
    """Processes, other than zombies, that have `word` among their arguments."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if word.encode() not in file.read().split(b"\0"):
                    continue
            with open(path.replace("cmdline", "stat"), encoding="utf-8") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(path.split("/")[2]))
        except OSError:
            continue
    return found


class Place:
    """What a run needs to know of the program, where no test's `Program` is."""

    def __init__(self, skein, folder):
        self.skein = os.path.abspath(skein)
        self.folder = folder


class ElasticRun:
    """A run in its own dump folder. `apart`: coordinator and workers are processes of ours, so that
    each can be killed alone; else `skein train` has the workers. `unlike`: apart, with other
    arguments and another environment for each worker. `network`: apart, the coordinator on its
    machine 0 and the workers on the next ones. `ignores_file_limit`: a file that may not
    grow is an error to the coordinator, and not its death. `waits_for`: the coordinator waits for
    so many workers, and the test starts them; `workers` is none then."""

    def __init__(self, program, name, workers, *words, apart=False, fail_point=None, dump=None,
                 network=None, job=SMALL_JOB, unlike=None, ignores_file_limit=False,
                 waits_for=0):
        self.program = program
        self.network = network
        self.ignores_file_limit = ignores_file_limit
        self.dump = dump or os.path.join(program.folder, name)
        self.environment = dict(os.environ)
        if fail_point:
            self.environment["SKEIN_FAIL_POINT"] = fail_point
        self.errors_path = os.path.join(program.folder, name + ".err")
        self.coordinator = None
        self.workers = []
        self.addresses = set()
        atexit.register(self.end)  # What a test leaves that an assertion has ended.
        common = ["--workers", str(waits_for or workers), "--job.dump_folder", self.dump, *LEASE, *words]
        if apart or network or unlike:
            listen = (["--listen", network.address(0) + ":0", "--insecure"] if network else
                      ["--listen", "127.0.0.1:0"])
            self.coordinator = self.spawn("coordinator", job, *listen, *common)
            for words, environment in unlike or [([], {})] * workers:
                self.join(*words, **environment)
        else:
            self.coordinator = self.spawn("train", job, *common)

    def spawn(self, *words, machine=0, **environment):
        before = self.network.command(machine) if self.network else []
        with open(self.errors_path, "ab") as errors:
            return subprocess.Popen([*before, self.program.skein, *words], cwd=self.program.folder,
                                    env=dict(self.environment, **environment), stdout=subprocess.DEVNULL, stderr=errors,
                                    # Python itself ignores SIGXFSZ; its children do if it is kept.
                                    restore_signals=not self.ignores_file_limit)

    def errors(self):
        with open(self.errors_path, encoding="utf-8") as file:
            return file.read().strip()

    def folder(self):
        """The newest run in our dump folder; "latest" points at it after its first commit only, and
        is made under a name of its own, which is gone when it is looked at."""
        runs = [each for each in glob.glob(os.path.join(self.dump, "*", "config.resolved.toml"))
                if not os.path.basename(os.path.dirname(each)).startswith("latest")]
        newest = max(runs, key=os.path.getmtime, default=os.path.join(self.dump, "none", ""))
        return os.path.dirname(os.path.realpath(newest))

    def address(self, seconds=20):
        """Where workers join; written once the coordinator listens."""
        def read():
            try:
                with open(os.path.join(self.folder(), "coordinator.address"),
                          encoding="utf-8") as file:
                    return file.read().strip()
            except OSError:
                return None
        address = wait_until(read, seconds)
        assert address, f"the coordinator does not listen: {self.errors()}"
        self.addresses.add(address)
        return address

    def join(self, *words, **environment):
        where = ["--bind", "auto", "--insecure"] if self.network else []
        number = len(self.workers) + 1
        worker = self.spawn("worker", "--join", self.address(), *where, *words,
                            machine=self.network.machine_of(number) if self.network else 0,
                            **environment)
        self.workers.append(worker)
        return worker

    def resume(self):
        """Another coordinator in place of the one that died, where its workers look for it."""
        self.coordinator = self.spawn("coordinator", "--resume", self.folder(), "--listen",
                                      self.address())

    def events(self, name=None):
        events = read_lines(os.path.join(self.folder(), "events.jsonl"))
        return [each for each in events if name in (None, each["event"])]

    def steps(self):
        """Lines of committed steps."""
        return [line for line in read_lines(os.path.join(self.folder(), "metrics.jsonl"))
                if line["kind"] == "step"]

    def steps_done(self):
        steps = self.steps()
        return steps[-1]["step"] if steps else 0

    def wait_for_step(self, step, seconds=60):
        reached = wait_until(lambda: self.steps_done() >= step or self.has_ended(), seconds)
        assert reached and not self.has_ended(), f"step {step} has not come: {self.errors()}"

    def wait_for_event(self, name, seconds=30):
        return wait_until(lambda: self.events(name) or self.has_ended(), seconds)

    def has_ended(self):
        return self.coordinator.poll() is not None

    def pid(self, worker):
        joined = [each for each in self.events("worker.joined") if each["worker"] == str(worker)]
        return int(joined[-1]["pid"])

    def signal(self, worker, number=signal.SIGKILL):
        os.kill(self.pid(worker), number)

    def finish(self, seconds=90):
        """The coordinator's exit code; None if it has not ended and was killed."""
        try:
            self.addresses.add(self.address(seconds=1))
        except AssertionError:
            pass
        try:
            code = self.coordinator.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.coordinator.kill()
            self.coordinator.wait()
            code = None
        for worker in self.workers:
            try:
                worker.wait(timeout=10)
            except subprocess.TimeoutExpired:
                pass  # An orphan: found below.
        return code

    def orphans(self):
        left = wait_until(lambda: not any(map(alive_with, self.addresses)), 3)
        return [] if left else sorted(sum(map(alive_with, self.addresses), []))

    def end(self):
        for process in [self.coordinator, *self.workers]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        for pid in sum(map(alive_with, self.addresses), []):
            os.kill(pid, signal.SIGKILL)

    def journal(self, what):
        connection = sqlite3.connect(os.path.join(self.folder(), "journal.sqlite"))
        try:
            return connection.execute(what).fetchall()
        finally:
            connection.close()

    def shapes(self):
        """Layers, rows and order of the plans that steps were committed under, without names."""
        used = {row[0] for row in self.journal("SELECT DISTINCT generation FROM commits")}
        shapes = set()
        for generation, text in self.journal("SELECT generation, plan FROM plans"):
            if generation in used:
                words = text.replace(f"generation={generation}", "").split("@w")
                shapes.add("".join(word.lstrip("0123456789") for word in words))
        return shapes

    def complaints_about_journal(self, steps):
        """Every step once, with the samples that follow those of the one before."""
        rows = self.journal("SELECT step, generation, first_sample, sample_count FROM commits "
                            "ORDER BY step")
        complaints = []
        if [row[0] for row in rows] != list(range(steps)):
            complaints.append(f"{len(rows)} commits instead of {steps}")
        for before, row in zip([(-1, 0, -GLOBAL_BATCH, GLOBAL_BATCH), *rows], rows):
            if row[1] < before[1]:
                complaints.append(f"step {row[0]}: generation {row[1]} after {before[1]}")
            if row[2] != before[2] + before[3] or row[3] != GLOBAL_BATCH:
                complaints.append(f"step {row[0]}: samples {row[2]} + {row[3]}")
        return complaints[:3]
