#!/usr/bin/env python3
"""How much of the gradients' all-reduce hides behind the last backward. Only for root.

    bench/overlap.py build/release/skein [--rounds 5] [--stages 1] [--cap 4] [--rate 1gbit]

Two pipeline replicas, each on a machine of its own: network namespaces whose links are shaped to 1 Gbit/s with
bursts of 1 MB. Devices only sleep; the last backward takes somewhat longer than the gradients' way,
so nearly all of it could be hidden. Step times of the same work per device
  none   in one pipeline replica, so that nothing is added up,
  end    with the all-reduce behind the last backward (comm.bucket_cap_mb = 0),
  under  with buckets under it.
Hidden is the share of the exposed communication, end - none, that under does not have. The runs of a
round are interleaved and take turns in who is first. Target fixed before: at least 70% hidden in the
median of the rounds.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
from namespaces import Network  # noqa: E402

TARGET = 0.7
WARM_UP_STEPS = 3
STEPS = 12
START_SECONDS = 60
RUN_SECONDS = 300
ROWS = 2  # Rows that one replica trains of a micro-batch.
FORWARD_US, BACKWARD_US = 15000, 36000  # The time of one block with these rows.

JOB = """
[job]
name = "overlap"
[model]
n_layer = 12
n_head = 4
n_embd = 256
positions = 64
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 16
[device]
type = "sleep"
sleep_update_us = 100
[validation]
batches = 0
[checkpoint]
enable = false
[profiling]
enable_profiling = false
[elastic]
snapshot_interval = 0
watch_speeds = false
"""


def words_of(kind, stages, cap):
    pipelines = 1 if kind == "none" else 2
    words = {
        "parallelism.pipeline_parallel_degree": stages,
        "parallelism.data_parallel_replicate_degree": pipelines,
        "training.micro_batch_size": ROWS * pipelines,
        "training.global_batch_size": ROWS * pipelines * 2 * stages,
        "training.steps": STEPS + WARM_UP_STEPS,
        "device.sleep_forward_us": FORWARD_US * pipelines,  # A device has a share of the rows.
        "device.sleep_backward_us": BACKWARD_US * pipelines,
        "comm.bucket_cap_mb": cap if kind == "under" else 0,
    }
    return [word for name, value in words.items() for word in ("--" + name, str(value))]


def wait_for(read, process, what):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        value = read()
        if value:
            return value
        time.sleep(0.02)
    sys.exit(f"{what} did not come: {process.poll()}")


def read_file(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def run_folder(dump):
    """The one run in the folder; nothing is there before it begins."""
    return next(iter(glob.glob(os.path.join(dump, "*-*"))), dump)


def run(skein, folder, network, kind, stages, cap):
    """Step times after the first ones, in seconds."""
    dump = tempfile.mkdtemp(dir=folder)
    pipelines = 1 if kind == "none" else 2
    quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    processes = []

    def spawn(machine, *words):
        processes.append(subprocess.Popen([*network.command(machine), skein, *words], **quiet))
        return processes[-1]

    try:
        coordinator = spawn(0, "coordinator", "job.toml", "--workers", str(stages * pipelines),
                            "--listen", network.address(0) + ":0", "--insecure",
                            "--job.dump_folder", dump, *words_of(kind, stages, cap))
        address = wait_for(lambda: read_file(os.path.join(run_folder(dump),
                                                          "coordinator.address")).strip(),
                           coordinator, "the coordinator's address")
        made = run_folder(dump)
        for number in range(stages * pipelines):
            # Replicas of a stage have consecutive numbers: each pipeline replica is on its own machine.
            spawn(number % pipelines, "worker", "--join", address, "--bind", "auto", "--insecure")
            wait_for(lambda: read_file(os.path.join(made, "events.jsonl")).count('"worker.joined"')
                     > number, coordinator, "a worker")
        error = coordinator.communicate(timeout=RUN_SECONDS)[1]
        if coordinator.returncode != 0:
            sys.exit(f"{kind}: code {coordinator.returncode}: {error.strip()}")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    lines = [json.loads(line) for line in read_file(os.path.join(made, "metrics.jsonl")).splitlines()]
    return [line["step_seconds"] for line in lines if line["kind"] == "step"][WARM_UP_STEPS:]


def spread(values, scale, unit, digits):
    return (f"{statistics.median(values) * scale:.{digits}f}{unit} "
            f"({min(values) * scale:.{digits}f} to {max(values) * scale:.{digits}f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--cap", type=float, default=4, help="comm.bucket_cap_mb of `under`")
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    skein = os.path.abspath(options.skein)
    if os.geteuid() != 0 or not Network.is_possible():
        sys.exit("only root can make networks")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    kinds = ["none", "end", "under"]
    medians = {kind: [] for kind in kinds}
    hidden = []
    network = Network(2)
    try:
        for machine in range(2):
            network.shape(machine, options.rate, "1mb")
        with tempfile.TemporaryDirectory(prefix="skein-bench-") as folder:
            with open(os.path.join(folder, "job.toml"), "w", encoding="utf-8") as file:
                file.write(JOB)
            for turn in range(options.rounds):
                order = kinds[turn % 3:] + kinds[:turn % 3]
                for kind in order:
                    times = run(skein, folder, network, kind, options.stages, options.cap)
                    medians[kind].append(statistics.median(times))
                none, end, under = (medians[kind][-1] for kind in kinds)
                hidden.append((end - under) / (end - none))
                print(f"round {turn + 1}: none {none * 1e3:.1f} ms, end {end * 1e3:.1f} ms, "
                      f"under {under * 1e3:.1f} ms: hidden {hidden[-1]:.1%}", flush=True)
    finally:
        network.remove()
    for kind in kinds:
        print(f"{kind:6} {spread(medians[kind], 1e3, ' ms', 1)} a step")
    print(f"hidden {spread(hidden, 100, '%', 1)}; target {TARGET:.0%}: "
          f"{'met' if statistics.median(hidden) >= TARGET else 'MISSED'}")


main()
