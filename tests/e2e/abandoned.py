#!/usr/bin/env python3
"""A coordinator that is gone for good, or paused for longer than anybody waits: its workers write what
they hold before they end, and the run goes on from there with other workers, though no checkpoint
was due."""
import contextlib
import glob
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import Program  # noqa: E402

STEPS = 60
LAYOUT = ["--parallelism.pipeline_parallel_degree", "2"]
WORDS = [*LAYOUT, "--training.steps", str(STEPS), "--device.speed", "0.25",
         "--checkpoint.interval", "1000", "--elastic.snapshot_interval", "0"]
TOLERANCE = 1e-4


def check_end(program, run, what, reference):
    """Others end the run from what was left."""
    committed = run.journal("SELECT max(step) FROM commits")[0][0] + 1
    for _ in range(2):
        run.join()
    code = run.finish()
    program.expect(f"{what}: others end the run", code == 0, run.errors()[-400:])
    adopted = run.events("checkpoint.adopted")
    program.expect(f"{what}: a checkpoint was made of what was left", len(adopted) == 1)
    # The last commit may have died with the coordinator that had journaled it.
    program.expect(f"{what}: of the newest state",
                   adopted and committed - int(adopted[0]["step"]) in (0, 1),
                   f"{adopted}, {committed} steps were committed")
    program.expect(f"{what}: and nothing is left of the rest",
                   not glob.glob(os.path.join(run.folder(), "checkpoint", "*.tmp")))
    complaints = run.complaints_about_journal(STEPS)
    program.expect(f"{what}: every step is committed once", not complaints, complaints)
    if code == 0:
        worst, tensor = worst_relative(read_model(newest(run.folder())), reference)
        program.expect(f"{what}: the weights are those of one process", worst <= TOLERANCE,
                       f"{worst:.1e} {tensor}")


@contextlib.contextmanager
def full_disk(folder):
    """A file system of its own at `folder`, without space until what this yields is called; None where we may not
    make one."""
    os.makedirs(folder, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=False)
    if mounted.returncode != 0:
        print("skip  only root can fill a disk", flush=True)
        yield None
        return
    filler = os.path.join(folder, "filler")
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield lambda: os.unlink(filler)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def dies(program, reference):
    """One worker is told to go meanwhile, and does not wait as long as the other one. There is no
    space for what they hold until the last one has given up."""
    run = ElasticRun(program, "abandoned", 2, *WORDS, "--elastic.coordinator_timeout_seconds", "7",
                     apart=True)
    run.wait_for_step(20)
    with full_disk(os.path.join(run.folder(), "checkpoint")) as make_space:
        leave_in_emergency(program, run, make_space)
        run.workers.clear()
        run.resume()
        check_end(program, run, "dead", reference)


def leave_in_emergency(program, run, make_space):
    run.coordinator.kill()
    run.coordinator.wait()
    run.workers[0].send_signal(signal.SIGTERM)
    if make_space:
        time.sleep(9)  # Both have given up by now.
        program.expect("who finds no space tries again",
                       all(each.poll() is None for each in run.workers))
        make_space()
    codes = [worker.wait(timeout=30) for worker in run.workers]
    program.expect("the workers give up", all(code not in (0, -9) for code in codes), codes)
    said = run.errors().count("what this worker holds is in ")
    program.expect("each says where its state is", said == 2, run.errors()[-400:])
    program.expect("one as it was to leave", "lost the coordinator, and this" in run.errors())
    left = glob.glob(os.path.join(run.folder(), "checkpoint", "*.tmp", "HELD"))
    program.expect("and it is there", len(left) == 2, left)


def sleeps(program, reference):
    run = ElasticRun(program, "asleep", 2, *WORDS, "--elastic.coordinator_timeout_seconds", "2",
                     "--elastic.heartbeat_timeout_seconds", "2", apart=True)
    run.wait_for_step(20)
    run.coordinator.send_signal(signal.SIGSTOP)
    for worker in run.workers:
        worker.wait(timeout=30)
    run.workers.clear()
    run.coordinator.send_signal(signal.SIGCONT)
    check_end(program, run, "paused", reference)
    back = [int(each["from"]) - int(each["to"]) for each in run.events("run.rolled_back")]
    program.expect("paused: nothing but that commit is taken back", sum(back) <= 1, back)


def is_at_work(program, reference):
    """Both are told to leave, and the device of one has the state for longer than it takes the coordinator, and
    others, to be there."""
    slow = ";".join(f"w{worker}:slow=4000x@step=20" for worker in (1, 2))
    run = ElasticRun(program, "at-work", 2, *WORDS, "--chaos", slow, "--elastic.heartbeat_timeout_seconds", "2",
                     apart=True)
    run.wait_for_step(20)
    time.sleep(1)
    run.coordinator.kill()
    run.coordinator.wait()
    for worker in run.workers:
        worker.send_signal(signal.SIGTERM)
    time.sleep(5)  # They have given it up.
    at_work = [worker for worker in run.workers if worker.poll() is None]
    program.expect("at work: the device of one is", at_work)
    run.resume()
    run.workers.clear()
    check_end(program, run, "at work", reference)
    back = run.events("run.rolled_back")
    program.expect("at work: no step is taken back", not back, back)
    for worker in at_work:
        worker.wait(timeout=30)


def main():
    program = Program()
    folder = program.run_reference("reference", "--training.steps", str(STEPS), *LAYOUT)
    reference = read_model(newest(folder + "/final"))
    dies(program, reference)
    sleeps(program, reference)
    is_at_work(program, reference)
    program.finish()


main()
