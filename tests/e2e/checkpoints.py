#!/usr/bin/env python3
"""Checkpoints that are damaged, that lie elsewhere, or that several write at a time: none is taken for
what it is not, and training goes on from another source or says why it cannot."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

BAD_DATA = 3
TOLERANCE = 1e-4
TWO_STAGES = ["--parallelism.pipeline_parallel_degree", "2", "--device.speed", "0.1"]
SLOWNESS = float(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
NO_SNAPSHOTS = ["--elastic.snapshot_interval", "0"]

# Makes the sync of a stage's files slow, as a disk under load does.
SLOW_SYNC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int fsync(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = 0;
  if (strstr(path, ".safetensors")) usleep(1500000);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
"""


# Lets a look at the first stage's file pass, which is for its header, and makes what follows slow, as
# a disk does from which the whole file is read.
SLOW_READ = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
static int looks;
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  if (strstr(path, "/model-00001-of-") && ++looks > 1) usleep(PAUSE_US);
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
"""


def preloaded(program, name, code, *options):
    """The environment of a process that has this code between itself and the C library."""
    source = os.path.join(program.folder, name + ".c")
    library = os.path.join(program.folder, name + ".so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(code)
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": library}


def complete(run):
    """Steps of the complete checkpoints of a run."""
    found = glob.glob(os.path.join(run.folder(), "checkpoint", "step-????????", "COMPLETE"))
    return sorted(int(os.path.dirname(path)[-8:]) for path in found)


def flip_floats(folder):
    """Changes some numbers of the first stage's weights; returns the name of their tensor."""
    path = glob.glob(os.path.join(folder, "model-00001-of-*.safetensors"))[0]
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        name = next(name for name in header if name != "__metadata__")
        file.seek(8 + length + header[name]["data_offsets"][0])
        values = bytearray(file.read(64))
        for i in range(3, len(values), 4):
            values[i] ^= 0x40
        file.seek(-len(values), os.SEEK_CUR)
        file.write(values)
    return name


def damaged(program, keep):
    """The newest checkpoint is changed under a run that needs it: a stage is lost."""
    claim = f"a damaged checkpoint, {keep} kept"
    steps = 30
    run = ElasticRun(program, f"damaged-{keep}", 2, *TWO_STAGES, *NO_SNAPSHOTS, "--training.steps",
                     str(steps), "--checkpoint.interval", "6", "--checkpoint.keep_latest_k",
                     str(keep), apart=True)
    # Half way between two checkpoints.
    run.wait_for_step(14)
    wait_until(lambda: 12 in complete(run), 10)
    tensor = flip_floats(newest(run.folder()))
    run.signal(2)
    code = run.finish()
    if keep == 1:
        program.expect(f"{claim}: it ends with the code for bad data and names file and tensor",
                       code == BAD_DATA and "model-00001" in run.errors() and
                       tensor in run.errors(), f"{code}: {run.errors()[-300:]}")
        return
    program.expect(f"{claim}: it ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
    told = run.events("checkpoint.damaged")
    program.expect(f"{claim}: it is told, with file and tensor",
                   told and "model-00001" in told[0]["text"] and tensor in told[0]["text"], told)
    back = [each["to"] for each in run.events("run.rolled_back")]
    program.expect(f"{claim}: training goes on from the older one", back[-1:] == ["6"], back)
    reference = program.run_reference("damaged-reference", "--training.steps", str(steps))
    worst, name = worst_relative(read_model(newest(run.folder())),
                                 read_model(newest(reference + "/final")))
    program.expect(f"{claim}: the weights are those of one process", worst <= TOLERANCE,
                   f"{worst:.1e} {name}")
    verified = program.run("verify", run.folder())
    program.expect(f"{claim}: verify finds nothing at the end",
                   verified.returncode == 0, verified.stdout + verified.stderr)


def resumed(program):
    """A run is resumed whose newest checkpoint is damaged; a finished one is verified."""
    result, run = program.train("resumed", "--training.steps", "9", "--checkpoint.interval", "3")
    tensor = flip_floats(newest(run))
    verified = program.run("verify", run)
    lines = [line for line in verified.stdout.splitlines() if "digests agree" not in line]
    program.expect("verify: a line for the fault, with file and tensor, and the code for bad data",
                   verified.returncode == BAD_DATA and len(lines) == 1 and
                   "model-00001" in lines[0] and f"tensor {tensor}" in lines[0],
                   f"{verified.returncode}: {verified.stdout}")
    again = program.run("train", "--resume", run, "--training.steps", "12")
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as file:
        told = [each for each in map(json.loads, file) if each["event"] == "checkpoint.damaged"]
    program.expect("resume: it goes on from an older checkpoint and says so",
                   result.returncode == 0 and again.returncode == 0 and
                   len(told) == 1 and told[0]["step"] == "6", f"{again.stderr} {told}")
    verified = program.run("verify", run)
    program.expect("resume: what it wrote anew is whole", verified.returncode == 0,
                   verified.stdout)


def deleted_meanwhile(program):
    """verify reads a run that deletes an older checkpoint after it has been listed."""
    _, run = program.train("live", "--training.steps", "6", "--checkpoint.interval", "3")
    folders = sorted(glob.glob(os.path.join(run, "checkpoint", "step-????????")))
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    try:
        while True:
            filled += os.write(writing, b" ")
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    # It waits with the line for the newest one until the pipe is read.
    with subprocess.Popen([program.skein, "verify", run], cwd=program.folder, stdout=writing,
                          stderr=subprocess.PIPE, text=True) as verify:
        os.close(writing)
        wait_until(lambda: waits_to_write(verify.pid), 10)
        for folder in folders[:-1]:
            os.rename(folder, folder + ".deleted.tmp")
        with os.fdopen(reading, encoding="utf-8") as file:
            said = file.read()[filled:]
        errors = verify.stderr.read()
    program.expect("verify: a checkpoint that is deleted meanwhile is not damaged",
                   len(folders) > 1 and verify.returncode == 0 and said.count("\n") == 1 and
                   os.path.basename(folders[-1]) in said, f"{folders} {said} {errors}")


def waits_to_write(process):
    with open(f"/proc/{process}/wchan", encoding="utf-8") as file:
        return "pipe" in file.read()


def join_elsewhere(program, run, mount="-t tmpfs none"):
    """A worker that has another file system where the run folder is."""
    mount = f"mount {mount} '{run.dump}' && exec \"$@\""
    with open(run.errors_path, "ab") as errors:
        run.workers.append(subprocess.Popen(
            ["unshare", "-m", "sh", "-c", mount, "sh", program.skein, "worker", "--join",
             run.address()], cwd=program.folder, stdout=subprocess.DEVNULL, stderr=errors))


def elsewhere(program):
    """A worker joins that does not see the run folder: what it holds is sent, and saved by the
    coordinator."""
    steps = 40
    run = ElasticRun(program, "elsewhere", 2, *TWO_STAGES, "--training.steps", str(steps),
                     "--checkpoint.interval", "6", apart=True)
    run.wait_for_step(7)
    wait_until(lambda: complete(run), 10)
    run.signal(2)
    join_elsewhere(program, run)
    sent = run.wait_for_event("checkpoint.sent")
    told = sent and not isinstance(sent, bool) and sent[0]["text"]
    program.expect("a shard elsewhere: the coordinator says who sends it",
                   told and "does not see the run folder" in told, told)
    before = run.steps_done()
    saved = wait_until(lambda: [each for each in complete(run) if each > before], 30)
    program.expect("a shard elsewhere: checkpoints go on", saved, complete(run))
    code = run.finish()
    program.expect("a shard elsewhere: the run ends with all steps, and its last checkpoint",
                   code == 0 and complete(run)[-1:] == [steps], f"{code}: {run.errors()[-300:]}")
    failed = run.events("checkpoint.failed")
    program.expect("a shard elsewhere: no checkpoint failed", not failed, failed)
    verified = program.run("verify", run.folder())
    program.expect("a shard elsewhere: all that is complete is whole", verified.returncode == 0,
                   verified.stdout + verified.stderr)
    reference = program.run_reference("elsewhere-reference", "--training.steps", str(steps))
    worst, name = worst_relative(read_model(newest(run.folder())),
                                 read_model(newest(reference + "/final")))
    program.expect("a shard elsewhere: the weights are those of one process", worst <= TOLERANCE,
                   f"{worst:.1e} {name}")


def copied(program):
    """A worker joins that sees a copy of the run folder: what it writes there is missing here."""
    steps = 40
    run = ElasticRun(program, "copied", 2, *TWO_STAGES, "--training.steps", str(steps),
                     "--checkpoint.interval", "6", apart=True)
    run.wait_for_step(7)
    wait_until(lambda: complete(run), 10)
    before = complete(run)
    copy = os.path.join(program.folder, "copy")
    shutil.copytree(run.dump, copy, symlinks=True)
    run.signal(2)
    join_elsewhere(program, run, f"--bind '{copy}'")
    joined = run.steps_done()
    failed = run.wait_for_event("checkpoint.failed")
    program.expect("a copy of the run folder: the coordinator says which checkpoint is not written",
                   failed and not isinstance(failed, bool) and int(failed[0]["step"]) > joined,
                   failed)
    code = run.finish()
    program.expect("a copy of the run folder: training goes on to its last step",
                   run.steps_done() == steps, f"{code}: {run.errors()[-300:]}")
    program.expect("a copy of the run folder: older checkpoints stay, and none lacks a stage",
                   before and complete(run)[-1] >= before[-1], complete(run))
    verified = program.run("verify", run.folder())
    program.expect("a copy of the run folder: all that is complete is whole",
                   verified.returncode == 0, verified.stdout + verified.stderr)
    program.expect("a copy of the run folder: it ends as one whose last checkpoint is not written",
                   code == 1, f"{code}")


def all_dead(program, name, steps):
    """A run whose coordinator and both workers have died beyond step 12, of which there is a checkpoint."""
    run = ElasticRun(program, name, 2, *TWO_STAGES, "--training.steps", str(steps),
                     "--checkpoint.interval", "6", apart=True)
    run.wait_for_step(13)
    wait_until(lambda: 12 in complete(run), 10)
    run.coordinator.kill()
    run.coordinator.wait()
    for worker in (1, 2):
        run.signal(worker)
    return run


def loaded_elsewhere(program):
    """The coordinator and all workers die, and those that come instead see nothing of the run folder:
    the coordinator sends them the checkpoint."""
    steps = 24
    run = all_dead(program, "loaded-elsewhere", steps)
    run.resume()
    for _ in range(2):
        join_elsewhere(program, run)
    code = run.finish()
    program.expect("a checkpoint elsewhere: the run ends with all steps, and its last checkpoint",
                   code == 0 and complete(run)[-1:] == [steps], f"{code}: {run.errors()[-300:]}")
    served = run.events("checkpoint.served")
    program.expect("a checkpoint elsewhere: both workers were sent it", len(served) == 2, served)
    back = [each["to"] for each in run.events("run.rolled_back")]
    program.expect("a checkpoint elsewhere: training went on from it", back == ["12"], back)
    unreadable = run.events("checkpoint.unreadable") + run.events("checkpoint.failed")
    program.expect("a checkpoint elsewhere: nobody complained", not unreadable, unreadable)
    verified = program.run("verify", run.folder())
    program.expect("a checkpoint elsewhere: all that is complete is whole",
                   verified.returncode == 0, verified.stdout + verified.stderr)
    reference = program.run_reference("loaded-reference", "--training.steps", str(steps))
    worst, name = worst_relative(read_model(newest(run.folder())),
                                 read_model(newest(reference + "/final")))
    program.expect("a checkpoint elsewhere: the weights are those of one process",
                   worst <= TOLERANCE, f"{worst:.1e} {name}")


def slow_to_read(program):
    """A coordinator is started again whose checkpoint comes from a slow disk: it takes workers in while
    it reads, and makes no plan before."""
    pause = SLOWNESS  # It is read several times.
    slow = preloaded(program, "slow_read", SLOW_READ, f"-DPAUSE_US={int(pause * 1e6)}")
    run = all_dead(program, "slow-read", 24)
    before = len(run.events())
    start = time.monotonic()
    run.coordinator = run.spawn("coordinator", "--resume", run.folder(), "--listen", run.address(),
                                **slow)
    for _ in range(2):
        run.join()

    def is_told(name, count):
        return sum(each["event"] == name for each in run.events()[before:]) >= count
    joined = wait_until(lambda: is_told("worker.joined", 2), 2 * pause)
    took = time.monotonic() - start
    program.expect("a checkpoint on a slow disk: workers are taken in while it is read",
                   joined and not is_told("plan.made", 1), f"{took:.2f} s")
    planned = wait_until(lambda: is_told("plan.made", 1), 30 * SLOWNESS)
    took = time.monotonic() - start
    program.expect("a checkpoint on a slow disk: the plan is made when it has been read",
                   planned and took >= pause, f"{took:.2f} s")
    code = run.finish()
    back = [each["to"] for each in run.events("run.rolled_back")]
    program.expect("a checkpoint on a slow disk: training goes on from it to its last step",
                   code == 0 and back == ["12"], f"{code}, {back}: {run.errors()[-300:]}")


def zombies(program):
    """A worker dies while the last checkpoint is being written: those who take over write the same
    state, while the first attempt is still at work."""
    slow = preloaded(program, "slow_sync", SLOW_SYNC)
    run = ElasticRun(program, "zombies", 3, "--parallelism.pipeline_parallel_degree", "3",
                     "--device.speed", "0.1", "--training.steps", "8", apart=True,
                     unlike=[([], slow)] * 4)
    run.wait_for_step(8)
    temporary = os.path.join(run.folder(), "checkpoint", "*", "*.tmp")
    program.expect("slow disks: the files of the first attempt are being synced",
                   wait_until(lambda: glob.glob(temporary), 10))
    run.signal(3, signal.SIGKILL)
    code = run.finish()
    program.expect("slow disks: a loss during the last checkpoint costs nothing", code == 0,
                   f"{code}: {run.errors()[-300:]}")
    verified = program.run("verify", run.folder())
    program.expect("slow disks: it is whole", code == 0 and verified.returncode == 0,
                   verified.stdout + verified.stderr)
    left = glob.glob(os.path.join(run.folder(), "checkpoint", "step-*", "*.tmp"))
    program.expect("slow disks: no temporary file is in it", not left, left)


def main():
    program = Program()
    damaged(program, keep=2)
    damaged(program, keep=1)
    resumed(program)
    deleted_meanwhile(program)
    elsewhere(program)
    copied(program)
    loaded_elsewhere(program)
    slow_to_read(program)
    zombies(program)
    program.finish()


main()
