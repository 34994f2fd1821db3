#!/usr/bin/env python3
"""docker/ works with a real engine, and leaves nothing: images, stopping and going on, workers that
come and go, and a coordinator that dies."""
import os
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from compose_cluster import ComposeCluster, wait_for  # noqa: E402
from docker_engine import DockerEngine, Unavailable  # noqa: E402
from running import SOURCE, Program  # noqa: E402

SKIPPED, STOPPED = 77, 75
JOB = os.path.join(SOURCE, "docker", "job.toml")
JOB_STEPS, BATCH = 60, 16  # As docker/job.toml says.
RUN_SECONDS = 60  # Within which a handful of steps is done on a loaded machine.
LEASE_SECONDS = 4
MANY_STEPS = 1000000  # More than there is time for.


def build_image(engine, program):
    """docker/Dockerfile with the program that the build folder has: nothing is compiled again."""
    context = os.path.join(program.folder, "context")
    os.makedirs(os.path.join(context, "cmake"))
    for name in ("cmake/install-packages.sh", "cmake/debian-packages.txt"):
        shutil.copy(os.path.join(SOURCE, name), os.path.join(context, name))
    surroundings = engine.build(f"skein-test-surroundings:{os.getpid()}", context,
                                "--file", os.path.join(SOURCE, "docker", "Dockerfile"),
                                "--target", "surroundings",
                                "--build-arg", f"BASE={engine.debian()}")
    context = os.path.join(program.folder, "program")
    os.makedirs(context)
    shutil.copy(program.skein, os.path.join(context, "skein"))
    with open(os.path.join(context, "Dockerfile"), "w", encoding="utf-8") as file:
        file.write(f"FROM {surroundings}\nCOPY skein /usr/local/bin/skein\n")
    return engine.build(f"skein-test:{os.getpid()}", context)


def write_job(program, name, steps, *lines):
    """docker/job.toml with other steps, fewer checkpoints, and lines at the end."""
    with open(JOB, encoding="utf-8") as file:
        text = file.read().replace(f"steps = {JOB_STEPS}", f"steps = {steps}")
    text = text.replace("interval = 20", "interval = 200")  # Its steps are short.
    path = os.path.join(program.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([text, *lines, ""]))
    return path


def check_journal(program, claim, commits, steps):
    """Every step once, and every sample once: ranges follow each other without gap or overlap."""
    expected = [(step, step * BATCH, BATCH) for step in range(steps)]
    wrong = [pair for pair in zip(commits, expected) if pair[0] != pair[1]]
    program.expect(claim, commits == expected, f"{len(commits)} of {steps} steps {wrong[:2]}")


def check_end(program, cluster, steps):
    """The run that goes on ends as it should."""
    codes = cluster.exit_codes("coordinator", RUN_SECONDS), cluster.exit_codes("worker")
    program.expect("all end with 0", not any(codes[0] + codes[1]), codes)
    code, text = cluster.in_coordinator("verify", "/runs/latest")
    program.expect("the checkpoint is whole and of the last step",
                   code == 0 and f"after {steps} steps and {steps * BATCH} samples" in text,
                   text.strip()[-160:])
    check_journal(program, "each step and each sample once", cluster.commits(program.folder),
                  steps)


def check_image(program, engine, image):
    user = engine.must("run", "--rm", "--entrypoint", "id", image, "-u")
    program.expect("the image does not run as root", user == "10001", user)
    code = engine.docker("run", "--rm", image, "--version")
    program.expect("its program finds its libraries", code.returncode == 0, code.stderr.strip())
    tools = engine.docker("run", "--rm", "--entrypoint", "sh", image, "-c", "command -v cc cmake")
    program.expect("it has no compiler", tools.stdout == "", tools.stdout)
    size = int(engine.must("inspect", "--format", "{{.Size}}", image)) / 1e6
    print(f"      {size:.0f} MB", flush=True)


def to_the_end(program, engine, image):
    """The job of docker/, whose workers are there before the coordinator."""
    with ComposeCluster(engine, "end", image) as cluster:
        cluster.up(2, "--no-deps", "worker")
        time.sleep(2)  # Long enough for a worker that does not wait to give up.
        program.expect("workers wait for the coordinator", len(cluster.running("worker")) == 2)
        cluster.up(2)
        check_end(program, cluster, JOB_STEPS)
    program.expect("nothing is left", cluster.leftovers() == [], cluster.leftovers())


def stop_and_go_on(program, engine, image):
    """A stopped run ends with a checkpoint, and the same command goes on from there."""
    job = write_job(program, "long.toml", MANY_STEPS)
    with ComposeCluster(engine, "stop", image, SKEIN_JOB=job) as cluster:
        cluster.up(2)
        program.expect("it trains", wait_for(lambda: cluster.steps_done() > 5, RUN_SECONDS))
        coordinator = cluster.containers("coordinator")[0]
        program.expect("the coordinator becomes healthy", wait_for(
            lambda: cluster.state(coordinator)["Health"]["Status"] == "healthy", RUN_SECONDS))
        stop(program, cluster)
        steps = finish(program, cluster, 2)
        check_end(program, cluster, steps)
        code, text = cluster.in_coordinator("coordinator", "/job.toml", "--resume-latest",
                                            "--training.steps", str(steps))
        program.expect("a finished run is left as it is", code == 0 and "nothing to do" in text,
                       text.strip()[-160:])
    program.expect("nothing is left", cluster.leftovers() == [], cluster.leftovers())


def stop(program, cluster):
    cluster.must("stop")
    codes = cluster.exit_codes("coordinator")
    program.expect("a stop saves", codes == [STOPPED], codes)
    codes = cluster.exit_codes("worker")
    program.expect("and tells the workers to leave", not any(codes), codes)


def finish(program, cluster, workers):
    """Starts a stopped run again, to end soon; how many steps it is to have then."""
    steps = len(cluster.commits(program.folder)) + 20
    shutil.rmtree(os.path.join(program.folder, cluster.project))
    cluster.up(workers, SKEIN_KEYS=f"--training.steps {steps}")
    return steps


class ScenarioOver(Exception):
    """What follows would only wait for what cannot come any more."""


class ElasticScenario:
    """Containers come, die, hang and are cut off while one job goes on."""

    def __init__(self, program, cluster, image):
        self.program = program
        self.cluster = cluster
        self.engine = cluster.engine
        self.image = image

    def expect_progress(self, claim, workers):
        """So many workers compute, and steps are committed with them."""
        cluster, start = self.cluster, time.monotonic()
        found = wait_for(lambda: cluster.busy_workers() == workers, RUN_SECONDS)
        before = cluster.steps_done()
        moved = wait_for(lambda: cluster.steps_done() > max(before, 0) + 2, RUN_SECONDS)
        self.program.expect(claim, found and moved,
                            f"{cluster.busy_workers()} of {workers} workers, step {before}, "
                            f"{time.monotonic() - start:.0f} s")
        if not (found and moved):
            raise ScenarioOver(claim)

    def scale(self, workers):
        self.cluster.up(workers, "--no-recreate")
        self.expect_progress(f"scaled to {workers} workers", workers)

    def kill_one(self, before):
        self.engine.must("kill", self.cluster.running("worker")[-1])
        self.expect_progress("goes on without a killed worker", before - 1)

    def drain_one(self, before):
        victim = self.cluster.running("worker")[-1]
        self.engine.must("stop", victim)
        code = self.cluster.state(victim)["ExitCode"]
        self.program.expect("a stopped worker leaves in good order", code == 0, code)
        self.expect_progress("goes on without a stopped worker", before - 1)

    def pause_one(self, before):
        victim = self.cluster.running("worker")[0]
        self.engine.must("pause", victim)
        time.sleep(LEASE_SECONDS + 1)  # The lease is what is tested.
        self.expect_progress("goes on without a hanging worker", before - 1)
        self.engine.must("unpause", victim)
        self.expect_progress("the hanging worker comes back", before)

    def cut_off_one(self, before):
        """No connection is closed: both sides find out by their leases."""
        victim = self.cluster.running("worker")[1]
        network = f"{self.cluster.project}_default"
        self.engine.must("network", "disconnect", network, victim)
        self.expect_progress("goes on without a worker that is cut off", before - 1)
        squatter = self.engine.must("run", "--detach", "--network", network, "--entrypoint",
                                    "sleep", self.image, "600")  # Takes the address it had.
        try:
            self.engine.must("network", "connect", network, victim)
            self.expect_progress("the worker that was cut off comes back", before)
        finally:
            self.engine.must("rm", "--force", squatter)
        count = self.engine.must("inspect", "--format", "{{.RestartCount}}", victim)
        self.program.expect("it was started anew, for its new address", count == "1", count)

    def crash_coordinator(self, workers):
        """The workers stay, and the engine starts the next coordinator."""
        coordinator = self.cluster.containers("coordinator")[0]
        process = self.cluster.state(coordinator)["Pid"]
        if not is_coordinator(process):
            print("      the engine's processes are not to be seen: no crash of the coordinator")
            return
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: self.cluster.state(coordinator)["Pid"] not in (0, process), RUN_SECONDS)
        self.expect_progress("goes on with the next coordinator", workers)


def is_coordinator(process):
    try:
        with open(f"/proc/{process}/cmdline", encoding="utf-8") as file:
            return file.read().split("\0")[:2] == ["skein", "coordinator"]
    except OSError:
        return False


def elastic(program, engine, image):
    job = write_job(program, "elastic.toml", MANY_STEPS, "[elastic]",
                    "heartbeat_interval_seconds = 1",
                    f"heartbeat_timeout_seconds = {LEASE_SECONDS}")
    with ComposeCluster(engine, "elastic", image, SKEIN_JOB=job) as cluster:
        scenario = ElasticScenario(program, cluster, image)
        cluster.up(2)
        scenario.expect_progress("two workers start", 2)
        scenario.scale(4)
        scenario.kill_one(before=4)
        scenario.drain_one(before=3)
        scenario.scale(6)
        scenario.pause_one(before=6)
        scenario.cut_off_one(before=6)
        scenario.crash_coordinator(workers=6)
        stop(program, cluster)
        cluster.must("start")
        scenario.expect_progress("goes on where it was stopped", 6)
        stop(program, cluster)
        check_end(program, cluster, finish(program, cluster, 6))
    program.expect("nothing is left", cluster.leftovers() == [], cluster.leftovers())


def main():
    # Time-outs and Ctrl-C must clean up too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    program = Program()
    try:
        with DockerEngine() as engine:
            start = time.monotonic()
            image = build_image(engine, program)
            engine.isolate()
            print(f"      images made in {time.monotonic() - start:.0f} s", flush=True)
            check_image(program, engine, image)
            to_the_end(program, engine, image)
            stop_and_go_on(program, engine, image)
            elastic(program, engine, image)
    except ScenarioOver as claim:
        print(f"      the scenario ends at: {claim}")
    except Unavailable as why:
        print(f"skipped: {why}; cmake/install-packages.sh docker installs an engine")
        program.temporary.cleanup()
        sys.exit(SKIPPED)
    program.finish()


main()
