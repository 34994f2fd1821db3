"""One Compose project of docker/compose.yaml, and questions to it."""
import json
import os
import sqlite3
import subprocess
import time

from running import SOURCE

COMPOSE_FILE = os.path.join(SOURCE, "docker", "compose.yaml")
COMMAND_SECONDS = 120  # A `down` may wait for the grace period of a container.


class ComposeCluster:
    """A coordinator and workers; leaves no container, network or volume when it goes."""

    def __init__(self, engine, name, image, **variables):
        self.engine = engine
        self.project = f"skein-test-{os.getpid()}-{name}"
        self.environment = dict(engine.environment, SKEIN_IMAGE=image,
                                COMPOSE_PROJECT_NAME=self.project, **variables)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(self.compose("logs", "--no-color", "--tail=40").stdout[-6000:], flush=True)
        for service in ("worker", "coordinator"):  # A paused container cannot be stopped.
            for container in self.containers(service):
                self.engine.docker("rm", "--force", container)
        self.compose("down", "--volumes", "--remove-orphans")

    def compose(self, *words, **variables):
        return subprocess.run([*self.engine.compose_words, "--file", COMPOSE_FILE, *words],
                              env=dict(self.environment, **variables), capture_output=True,
                              text=True, timeout=COMMAND_SECONDS, check=False)

    def must(self, *words, **variables):
        result = self.compose(*words, **variables)
        if result.returncode != 0:
            raise RuntimeError(f"compose {' '.join(words)}: {result.stderr.strip()[-800:]}")
        return result.stdout.strip()

    def up(self, workers, *words, **variables):
        self.must("up", "--detach", "--no-build", "--scale", f"worker={workers}", *words,
                  **variables)

    def containers(self, service):
        """Ids of all containers of a service, dead or alive, oldest first."""
        found = self.engine.docker(
            "ps", "--all", "--quiet", "--no-trunc",
            "--filter", f"label=com.docker.compose.project={self.project}",
            "--filter", f"label=com.docker.compose.service={service}",
            "--filter", "label=com.docker.compose.oneoff=False")
        return found.stdout.split()[::-1]

    def running(self, service):
        return [container for container in self.containers(service)
                if self.state(container)["Running"]]

    def state(self, container):
        return json.loads(self.engine.must("inspect", "--format", "{{json .State}}", container))

    def exit_codes(self, service, timeout=60):
        """Of every container of the service, once all have ended; None for one that goes on."""
        wait_for(lambda: not self.running(service), timeout)
        states = [self.state(container) for container in self.containers(service)]
        return [None if state["Running"] else state["ExitCode"] for state in states]

    def status(self):
        """What the coordinator says of the run, or None while there is no answer."""
        running = self.running("coordinator")
        if not running:
            return None
        result = self.engine.docker("exec", running[0], "skein", "status", "--json")
        return json.loads(result.stdout) if result.returncode == 0 else None

    def steps_done(self):
        status = self.status()
        return status["steps_done"] if status else -1

    def busy_workers(self):
        """How many workers compute, or -1."""
        status = self.status()
        return sum(bool(worker["replicas"]) for worker in status["workers"]) if status else -1

    def in_coordinator(self, *words):
        """The program's answer in a container of its own, with the run folders."""
        result = self.compose("run", "--rm", "--no-deps", "-T", "coordinator", *words)
        return result.returncode, result.stdout or result.stderr

    def commits(self, folder):
        """The journal of the latest run: (step, first sample, count) in the order of the steps."""
        container = self.containers("coordinator")[-1]
        self.engine.must("cp", f"{container}:/runs", os.path.join(folder, self.project))
        path = os.path.join(folder, self.project, "latest", "journal.sqlite")
        database = sqlite3.connect(path)
        try:
            return database.execute("SELECT step, first_sample, sample_count FROM commits "
                                    "ORDER BY step").fetchall()
        finally:
            database.close()

    def leftovers(self):
        """Everything that docker still has of the project."""
        label = f"label=com.docker.compose.project={self.project}"
        found = []
        for kind in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
            found += self.engine.must(*kind, "--quiet", "--filter", label).split()
        return found


def wait_for(holds, timeout):
    """Whether it came to hold within the time."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True
