"""docker/ works with a real engine: images, scaled workers, stopping, going on; and leaves nothing.

With --elastic as well: workers that come and go, and a coordinator that dies.
"""
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
LEASE_SECONDS = 3
RESUME = "--resume /runs/latest"


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


def stop_and_resume(program, engine, image):
    """A stopped run ends with a checkpoint, and SKEIN_RUN goes on from there."""
    job = write_job(program, "long.toml", 100000)
    with ComposeCluster(engine, "resume", image, SKEIN_JOB=job) as cluster:
        cluster.up(2)
        program.expect("it trains", wait_for(lambda: cluster.steps_done() > 5, RUN_SECONDS))
        coordinator = cluster.containers("coordinator")[0]
        program.expect("the coordinator becomes healthy", wait_for(
            lambda: cluster.state(coordinator)["Health"]["Status"] == "healthy", RUN_SECONDS))
        cluster.must("stop")
        code = cluster.state(coordinator)["ExitCode"]
        program.expect("a stop saves", code == STOPPED, code)
        codes = cluster.exit_codes("worker")
        program.expect("and tells the workers to leave", not any(codes), codes)
        done = len(cluster.commits(program.folder))
        shutil.rmtree(os.path.join(program.folder, cluster.project))
        steps = done + 20
        cluster.up(2, SKEIN_RUN=f"{RESUME} --training.steps {steps}")
        check_end(program, cluster, steps)
    program.expect("nothing is left", cluster.leftovers() == [], cluster.leftovers())


class ScenarioOver(Exception):
    """What follows would only wait for what cannot come any more."""


class ElasticScenario:
    """Containers come, die, hang and are cut off while one job goes on."""

    def __init__(self, program, cluster):
        self.program = program
        self.cluster = cluster

    def expect_progress(self, claim, workers):
        """So many workers compute, and steps are committed with them."""
        cluster = self.cluster
        found = wait_for(lambda: cluster.busy_workers() == workers, RUN_SECONDS)
        before = cluster.steps_done()
        moved = wait_for(lambda: cluster.steps_done() > max(before, 0) + 2, RUN_SECONDS)
        self.program.expect(claim, found and moved,
                            f"{cluster.busy_workers()} of {workers} workers, step {before}")
        if not (found and moved):
            raise ScenarioOver(claim)

    def scale(self, workers):
        self.cluster.up(workers, "--no-recreate")
        self.expect_progress(f"scaled to {workers} workers", workers)

    def kill_one(self, before):
        victim = self.cluster.running("worker")[-1]
        self.cluster.engine.must("kill", victim)
        self.expect_progress("goes on without a killed worker", before - 1)

    def pause_one(self, before):
        victim = self.cluster.running("worker")[0]
        self.cluster.engine.must("pause", victim)
        time.sleep(2 * LEASE_SECONDS)  # The lease is what is tested.
        self.expect_progress("goes on without a hanging worker", before - 1)
        self.cluster.engine.must("unpause", victim)
        self.expect_progress("the hanging worker comes back", before)

    def cut_off_one(self, before):
        engine, victim = self.cluster.engine, self.cluster.running("worker")[1]
        network = f"{self.cluster.project}_default"
        engine.must("network", "disconnect", network, victim)
        self.expect_progress("goes on without a worker that is cut off", before - 1)
        engine.must("network", "connect", network, victim)
        self.expect_progress("the worker that was cut off comes back", before)

    def kill_coordinator(self, workers):
        """As the machine below it would: the workers stay and find the next one."""
        self.cluster.must("kill", "coordinator")
        self.cluster.up(workers, SKEIN_RUN=RESUME)
        self.expect_progress("goes on with the next coordinator", workers)

    def stop_all_and_finish(self, workers):
        self.cluster.must("stop")
        done = len(self.cluster.commits(self.program.folder))
        shutil.rmtree(os.path.join(self.program.folder, self.cluster.project))
        steps = done + 20
        self.cluster.up(workers, SKEIN_RUN=f"{RESUME} --training.steps {steps}")
        return steps


def elastic(program, engine, image):
    job = write_job(program, "elastic.toml", 1000000, "[elastic]",
                    "heartbeat_interval_seconds = 0.5",
                    f"heartbeat_timeout_seconds = {LEASE_SECONDS}")
    with ComposeCluster(engine, "elastic", image, SKEIN_JOB=job,
                        SKEIN_WORKER_RESTART="on-failure") as cluster:
        scenario = ElasticScenario(program, cluster)
        cluster.up(2)
        scenario.expect_progress("two workers start", 2)
        scenario.scale(4)
        scenario.kill_one(before=4)
        scenario.scale(6)
        scenario.pause_one(before=6)
        scenario.cut_off_one(before=6)
        scenario.kill_coordinator(workers=6)
        steps = scenario.stop_all_and_finish(workers=6)
        check_end(program, cluster, steps)
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
            stop_and_resume(program, engine, image)
            if "--elastic" in sys.argv:
                elastic(program, engine, image)
    except ScenarioOver as claim:
        print(f"      the scenario ends at: {claim}")
    except Unavailable as why:
        print(f"skipped: {why}; cmake/install-packages.sh docker installs an engine")
        program.temporary.cleanup()
        sys.exit(SKIPPED)
    program.finish()


main()
