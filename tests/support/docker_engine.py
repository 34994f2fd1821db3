"""A Docker engine for tests, and a Debian image that needs no registry of images."""
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

START_SECONDS = 60  # A first start makes keys and folders; usually two.
STOP_SECONDS = 30
BUILD_SECONDS = 300
DEBIAN = "bookworm"
IMAGE = f"debian:{DEBIAN}-slim"
PR_SET_PDEATHSIG = 1


class Unavailable(Exception):
    """There is no engine here; the text says why."""


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class DockerEngine:
    """The engine that runs on this machine or, if none does, one of our own.

    Our own keeps all it has in a temporary folder. It first runs in the machine's network, because
    building an image installs packages, and for containers in a network of its own: bridges and
    packet filter rules then go with it, as its mounts do, and the machine's stay as they were.
    """

    def __init__(self):
        self.environment = dict(os.environ)
        self.daemon = None
        self.folder = None
        self.images = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Unavailable("an engine can only be started and used by root")
        self.compose_words = self.find_compose()
        if not shutil.which("docker"):
            raise Unavailable("there is no program docker")
        if self.docker("info").returncode == 0:
            return self
        for tool in ("dockerd", "iptables", "unshare"):
            if not shutil.which(tool):
                raise Unavailable(f"no engine runs, and there is no program {tool}")
        self.folder = tempfile.mkdtemp(prefix="skein-docker-")
        self.environment["DOCKER_HOST"] = f"unix://{self.folder}/docker.sock"
        try:
            self.start("--mount", ["--iptables=false", "--ip-masq=false", "--ip-forward=false",
                            "--bridge=none"])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        for image in self.images:
            self.docker("rmi", "--force", image)
        self.stop()

    def find_compose(self):
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False) \
            if shutil.which("docker") else None
        if found and found.returncode == 0:
            return ["docker", "compose"]
        if shutil.which("docker-compose"):
            return ["docker-compose"]
        raise Unavailable("there is neither docker compose nor docker-compose")

    def start(self, apart, options):
        command = ["unshare", *apart.split(), "--", "dockerd", "--host",
                   self.environment["DOCKER_HOST"],
                   "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec",
                   "--pidfile", f"{self.folder}/pid", *options]
        log = os.path.join(self.folder, "log")
        with open(log, "ab") as output:
            self.daemon = subprocess.Popen(command, stdout=output, stderr=output,
                                           preexec_fn=die_with_parent, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while self.docker("info").returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                with open(log, encoding="utf-8", errors="replace") as file:
                    raise Unavailable(f"dockerd does not start: {file.read()[-600:]}")
            time.sleep(0.2)

    def isolate(self):
        """To be called once images are built, before the first container."""
        if self.daemon:
            self.end_daemon()
            # No name server is to be reached from there: names that are not there fail at once.
            self.start("--mount --net", ["--bridge=none", "--dns=127.0.0.1"])

    def end_daemon(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    def stop(self):
        self.end_daemon()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def docker(self, *words, timeout=60, **options):
        return subprocess.run(["docker", *words], env=self.environment, text=True, timeout=timeout,
                              capture_output=True, check=False, **options)

    def must(self, *words, **options):
        """Its output; an error ends the test."""
        result = self.docker(*words, **options)
        if result.returncode != 0:
            raise RuntimeError(f"docker {' '.join(words)}: {result.stderr.strip()[-800:]}")
        return result.stdout.strip()

    def build(self, name, context, *options):
        self.images.insert(0, name)
        self.must("build", "--network=host", "--tag", name, *options, context,
                  timeout=BUILD_SECONDS)
        return name

    def debian(self):
        """The name of a minimal Debian image: the usual one if it is here, else one made now."""
        if self.docker("image", "inspect", IMAGE).returncode == 0:
            return IMAGE
        name = f"skein-test-debian:{os.getpid()}"
        # Most of the time would go into syncing files that are thrown away.
        parent = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 2 ** 30 else None
        with tempfile.TemporaryDirectory(prefix="skein-debian-", dir=parent) as folder:
            root = os.path.join(folder, "root")
            made = subprocess.run(["debootstrap", "--variant=minbase", DEBIAN, root, *mirror()],
                                  capture_output=True, text=True, timeout=BUILD_SECONDS,
                                  check=False)
            if made.returncode != 0:
                raise Unavailable(f"no image {IMAGE}, and debootstrap cannot make one: "
                                  f"{made.stdout.strip()[-300:]}")
            with open(f"{root}/etc/dpkg/dpkg.cfg.d/unsafe-io", "w", encoding="utf-8") as file:
                file.write("force-unsafe-io\n")
            self.images.append(name)
            with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
                self.must("import", "-", name, stdin=tar.stdout, timeout=BUILD_SECONDS)
        return name


def mirror():
    """Where this machine gets its Debian packages, if it is one; debootstrap knows a default."""
    if not shutil.which("apt-get"):
        return []
    found = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)",
                            "Identifier: Packages"], capture_output=True, text=True, check=False)
    return [line.split()[0] for line in found.stdout.splitlines()
            if line.split()[1:] == [DEBIAN]][:1]
