#!/usr/bin/env python3
"""What somebody meets who uses the program for the first time, and what goes wrong then."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from running import SMALL_JOB, SOURCE, Program  # noqa: E402

FAULT, USAGE, BAD_DATA = 1, 2, 3
SLOWNESS = int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
LIMIT_SECONDS = 30 * SLOWNESS
TWO_STAGES = ["--parallelism.pipeline_parallel_degree", "2"]


def listing(program, dump):
    folder = os.path.join(program.folder, dump)
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []


def latest(program, dump):
    path = os.path.join(program.folder, dump, "latest")
    return os.readlink(path) if os.path.islink(path) else None


def steps_of(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [row["step"] for row in map(json.loads, file) if row["kind"] == "step"]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run_that_cannot_begin(program):
    """Nothing is left of a run that cannot begin, and the one before stays the latest."""
    words = [*TWO_STAGES, "--training.steps", "4"]
    first, run = program.train("began", *words)
    program.expect("a run is the latest", first.returncode == 0 and
                   latest(program, "began") == os.path.basename(run), first.stderr.strip())
    before = listing(program, "began")
    port = free_port()
    for what, code, bad in (("data that is not there", BAD_DATA, ["--data.path", "/nope"]),
                            ("a checkpoint that is not there", BAD_DATA,
                             ["--checkpoint.initial_load_path", "/nope"])):
        result = program.run("train", SMALL_JOB, "--job.dump_folder", "began", *words, *bad)
        lines = result.stderr.strip().splitlines()
        program.expect(f"{what} is one line", result.returncode == code and len(lines) == 1 and
                       "/nope" in lines[0], result.stderr.strip())
        program.expect(f"{what} leaves nothing", listing(program, "began") == before,
                       str(listing(program, "began")))
    with socket.create_server(("127.0.0.1", port)):
        taken = program.run("coordinator", SMALL_JOB, "--job.dump_folder", "began", "--listen",
                            f"127.0.0.1:{port}")
    program.expect("an address that is taken leaves nothing", taken.returncode == FAULT and
                   listing(program, "began") == before, taken.stderr.strip())
    text = program.run("generate", os.path.join("began", "latest"), "--tokens", "4",
                       errors="replace")
    crowd = program.run("generate", os.path.join("began", "latest"), "--threads", "100000")
    program.expect("generate refuses more threads than a machine starts",
                   crowd.returncode == 2 and "--threads" in crowd.stderr, crowd.stderr.strip())
    program.expect("generate outputs/latest finds the trained run", text.returncode == 0,
                   text.stderr.strip())
    program.train("began", *words[:-1], "6", "--resume-latest")
    program.expect("--resume-latest goes on in it", steps_of(run) == [1, 2, 3, 4, 5, 6],
                   str(steps_of(run)))


def killed_before_the_first_commit(program):
    """Who restarts a coordinator that was killed early gets the same run, not a second one."""
    words = [SMALL_JOB, "--job.dump_folder", "early", "--training.steps", "3", *TWO_STAGES]
    coordinator = subprocess.Popen([program.skein, "coordinator", *words, "--resume-latest"],
                                   cwd=program.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
    coordinator.stderr.readline()  # It listens.
    coordinator.kill()
    coordinator.wait()
    runs = listing(program, "early")
    program.expect("a run without a commit is not the latest", len(runs) == 1, str(runs))
    again = program.run("train", *words, "--resume-latest")
    program.expect("--resume-latest goes on in the run that had begun", again.returncode == 0 and
                   listing(program, "early") == sorted(["latest", *runs]) and
                   latest(program, "early") == runs[0], again.stderr.strip())


def no_gpu(program):
    """Only "auto" computes on the processor where there is no GPU."""
    absent = dict(os.environ, SKEIN_CUDA_PLUGIN="/nowhere/libskein_cuda.so")
    words = ["--training.steps", "2", *TWO_STAGES, "--device.type"]
    result, run = program.train("gpu", *words, "cuda", env=absent)
    lines = result.stderr.strip().splitlines()
    program.expect("a GPU that is asked for and not there is one line and no success",
                   result.returncode == FAULT and len(lines) == 1 and
                   "no CUDA device" in lines[0] and "/nowhere" in lines[0] and
                   'device.type = "auto"' in lines[0],
                   f"code {result.returncode}: {result.stderr.strip()}")
    program.expect("the summary names no file that is not there", "metrics.jsonl" in result.stdout and
                   "plan.txt" not in result.stdout, result.stdout.strip())
    program.expect("no step was done, and the run is not the latest",
                   steps_of(run) == [] and latest(program, "gpu") is None)
    coordinator = subprocess.Popen(
        [program.skein, "coordinator", SMALL_JOB, "--job.dump_folder", "gpu", "--device.type",
         "cuda", "--workers", "1"], cwd=program.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    worker = program.run("worker", "--join", coordinator.stderr.readline().split()[-1], env=absent)
    told = next((line for line in coordinator.stdout if "no CUDA device" in line), "")
    coordinator.kill()
    coordinator.communicate(timeout=LIMIT_SECONDS)
    lines = worker.stderr.strip().splitlines()
    program.expect("a worker by itself says so, and its coordinator", worker.returncode == FAULT and
                   len(lines) == 1 and "no CUDA device" in lines[0] and "w1" in told, told.strip())
    result, run = program.train("gpu", *words, "auto", env=absent)
    program.expect("auto takes the processor", result.returncode == 0 and steps_of(run) == [1, 2],
                   result.stderr.strip())


def nobody_to_join(program):
    """A worker says at once whom it waits for; a signal ends the wait."""
    address = f"127.0.0.1:{free_port()}"
    worker = subprocess.Popen([program.skein, "worker", "--join", address], cwd=program.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    line = worker.stderr.readline()
    took = time.monotonic() - started
    program.expect("a worker says whom it waits for and for how long, at once",
                   address in line and "30 s" in line and took < LIMIT_SECONDS / 2,
                   f"after {took:.2f} s: {line.strip()}")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=LIMIT_SECONDS)
    coordinator = subprocess.Popen(
        [program.skein, "coordinator", SMALL_JOB, "--job.dump_folder", "joined", "--workers", "1",
         "--training.steps", "2"], cwd=program.folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    address = coordinator.stderr.readline().split()[-1]
    drained = program.run("drain", address, "--worker", "2")
    program.expect("whoever drains a run without workers is told that it has none", drained.returncode == 3 and
                   drained.stderr == "skein: there is no worker w2; the run has none\n", drained.stderr.strip())
    joined = program.run("worker", "--join", address)
    coordinator.communicate(timeout=LIMIT_SECONDS)
    program.expect("one that is answered says nothing", joined.returncode == 0 and
                   joined.stderr == "", joined.stderr.strip())


def status_after_the_end(program):
    _, run = program.train("ended", "--training.steps", "4", *TWO_STAGES)
    result = program.run("status", run)
    program.expect("status of a finished run says that it has ended, and at which step",
                   result.returncode == 0 and "has ended, at step 4/4" in result.stdout,
                   result.stdout.strip() + result.stderr.strip())
    told = json.loads(program.run("status", os.path.join("ended", "latest"), "--json").stdout)
    program.expect("and as JSON", told["state"] == "done" and told["steps_done"] == 4 and
                   told["steps_total"] == 4 and told["workers"] == [], str(told))
    crashed = subprocess.Popen(
        [program.skein, "train", SMALL_JOB, "--job.dump_folder", "crashed", "--workers", "1",
         "--training.steps", "100000"], cwd=program.folder, stdout=subprocess.PIPE, text=True)
    for line in crashed.stdout:
        if line.startswith("step"):
            break
    crashed.kill()
    crashed.communicate(timeout=LIMIT_SECONDS)
    result = program.run("status", os.path.join("crashed", "latest"))
    program.expect("status of one that has crashed says how it goes on",
                   result.returncode == 0 and re.search(r"at step \d+/100000", result.stdout) and
                   "--resume" in result.stdout and "from the beginning" in result.stdout,
                   result.stdout.strip() + result.stderr.strip())


def signals_end_it(program):
    """A command that waits for no signal is ended by one, as any program is."""
    fifo = os.path.join(program.folder, "job.fifo")
    os.mkfifo(fifo)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background ignores it.
    for number in (signal.SIGINT, signal.SIGTERM):
        reader = subprocess.Popen([program.skein, "config", "show", fifo], cwd=program.folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(fifo, "w", encoding="utf-8"):  # It reads, and would for as long as we write.
            reader.send_signal(number)
            try:
                reader.wait(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                reader.kill()
                reader.wait()
        program.expect(f"{number.name} ends a command that waits for none",
                       reader.returncode == -number, f"code {reader.returncode}")


def typos(program):
    def refuses(claim, words, *arguments, **options):
        result = program.run(*arguments, **options)
        lines = result.stderr.strip().splitlines()
        program.expect(claim, result.returncode == USAGE and len(lines) == 1 and
                       all(word in lines[0] for word in words),
                       f"code {result.returncode}: {result.stderr.strip()}")
        return lines[0] if lines else ""

    refuses("a typo in a variable", ["SKEIN_TRAINING_STPES", "did you mean SKEIN_TRAINING_STEPS"],
            "train", SMALL_JOB, "--job.dump_folder", "typos",
            env=dict(os.environ, SKEIN_TRAINING_STPES="5"))
    refuses("a typo in a command", ["did you mean train"], "tarin", SMALL_JOB)
    refuses("a typo in a command of a command", ["did you mean show"], "config", "shwo", SMALL_JOB)
    refuses("a file that was forgotten", ["skein config show --help"], "config", "show")
    refuses("a typo in an option", ["--wrokers", "did you mean --workers"], "train", SMALL_JOB,
            "--wrokers", "2")
    refuses("a job key of a worker", ["takes no keys of a job", "--device.type",
                                      "did you mean --device cuda --speed 0.5"],
            "worker", "--join", "127.0.0.1:1", "--device.type", "cuda", "--device.speed", "0.5")
    refuses("a job key without a job", ["skein verify", "--training.steps"], "verify", "none",
            "--training.steps", "3")
    line = refuses("a value out of range", ["at least 1"], "train", SMALL_JOB, "--training.steps",
                   "0")
    program.expect("its key is said once", line.count("training.steps") == 1, line)
    line = refuses("a value of another type", ["expected"], "train", SMALL_JOB, "--training.steps",
                   "x")
    program.expect("its key is said once, too", line.count("training.steps") == 1, line)
    program.expect("nothing is left of all that", listing(program, "typos") == [])


def without_standard_streams(program):
    """Who closes them gets the same files: nothing that is printed goes into one."""
    words = [program.skein, "train", SMALL_JOB, "--job.dump_folder", "closed", *TWO_STAGES,
             "--training.steps", "3"]
    result = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words],
                            cwd=program.folder, timeout=LIMIT_SECONDS, check=False)
    run = os.path.join(program.folder, "closed", "latest")
    program.expect("a run without standard streams has its metrics and nothing else in them",
                   result.returncode == 0 and steps_of(run) == [1, 2, 3])


    with open("/dev/full", "w", encoding="utf-8") as full:
        for what in (["config", "keys"], ["simulate", "--stages", "2", "--microbatches", "2"]):
            result = subprocess.run([program.skein, *what], stdout=full, stderr=subprocess.PIPE,
                                    text=True, cwd=program.folder, check=False)
            program.expect(f"{what[0]} whose output is lost has failed", result.returncode == FAULT and
                           "standard output" in result.stderr, result.stderr.strip())


def what_is_printed(program):
    result, run = program.train("printed", *TWO_STAGES, "--training.steps", "3", "--metrics.log_freq",
                                "1")
    first = next(line for line in result.stdout.splitlines() if line.startswith("step"))
    program.expect("the first progress line has no rate yet", "| - tok/s" in first and
                   "eta -" in first, first)
    plan = next(line for line in result.stdout.splitlines() if "plan 1" in line)
    program.expect("a plan says what its layers are", "3x1 | 3x1" in plan and
                   "6 layers = embedding, 4 blocks, head" in plan, plan)
    program.expect("a run leaves a picture of itself",
                   os.path.exists(os.path.join(run, "history.svg")))


def quickstart(program):
    """The build of examples/quickstart.sh is heard of while it runs, and its failure is one."""
    place = os.path.join(program.folder, "clone")
    for folder in ("build/release", "bin"):
        os.makedirs(os.path.join(place, folder))
    for script in ("examples/quickstart.sh", "cmake/show-progress.sh"):
        os.makedirs(os.path.join(place, os.path.dirname(script)))
        shutil.copy(os.path.join(SOURCE, script), os.path.join(place, script))

    def stand_in(path, text):
        with open(os.path.join(place, path), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(os.path.join(place, path), 0o755)

    def start():
        path = os.path.join(place, "bin") + os.pathsep + os.environ["PATH"]
        return subprocess.Popen([os.path.join(place, "examples", "quickstart.sh"), "--no-install"],
                                env=dict(os.environ, PATH=path), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    stand_in("build/release/skein", "echo skein $1\n")
    # The build goes on when we have read of it.
    os.mkfifo(os.path.join(place, "go"))
    stand_in("bin/cmake", f"""[ $1 = --build ] || exit 0
echo '[1/3] one'; echo '[2/3] two'; cat {place}/go; echo 'one.cpp:1: a warning'; echo '[3/3] three'
""")
    process = start()
    heard = [process.stdout.readline().strip() for _ in range(2)]
    with open(os.path.join(place, "go"), "w", encoding="utf-8") as file:
        file.write("\n")
    rest, _ = process.communicate(timeout=LIMIT_SECONDS)
    program.expect("a piped quickstart tells of the build before it ends",
                   heard[1] == "[1/3] one" and process.returncode == 0, str(heard))
    program.expect("every so often, and of every warning", "[2/3]" not in rest and
                   "one.cpp:1: a warning" in rest and "skein train" in rest, rest.strip())
    stand_in("bin/cmake", "[ $1 = --build ] || exit 0\necho 'FAILED: one.cpp.o'; exit 1\n")
    process = start()
    said, _ = process.communicate(timeout=LIMIT_SECONDS)
    program.expect("a build that fails ends it", process.returncode != 0 and
                   "FAILED: one.cpp.o" in said and "skein train" not in said, said.strip())


def readme(program):
    """What README.md shows is what the files say."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(SOURCE, "examples", "quickstart.toml"), encoding="utf-8") as file:
        steps = re.search(r"^steps = (\d+)$", file.read(), re.M).group(1)
    program.expect("its sample has the steps of the file", f"/{steps} |" in text and
                   f"validation at step {steps}:" in text)
    bare = [line for line in text.splitlines() if "ctest " in line and "--test-dir" not in line]
    program.expect("every ctest says where the tests are", not bare, str(bare))
    size = os.path.getsize(os.path.join(SOURCE, "docs", "kill.svg"))
    program.expect("it has a picture of a kill", "docs/kill.svg" in text and size < 60_000)


def main():
    program = Program()
    run_that_cannot_begin(program)
    killed_before_the_first_commit(program)
    no_gpu(program)
    nobody_to_join(program)
    status_after_the_end(program)
    signals_end_it(program)
    typos(program)
    without_standard_streams(program)
    what_is_printed(program)
    quickstart(program)
    readme(program)
    program.finish()


main()
