#!/usr/bin/env python3
"""Real faults on real processes: training goes on, loses no sample, and ends with the weights of a
run that nobody disturbed. `--long`, or SKEIN_TEST_LONG=1, does many more trials; `--only WORD`,
`--seed N`, `--jobs N`."""
import argparse
import concurrent.futures
import contextlib
import glob
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits, worst_relative  # noqa: E402
from elastic_runs import LAYOUTS, LEASE_SECONDS, PACE, ElasticRun, wait_until  # noqa: E402
from running import LONG, Program  # noqa: E402

STEPS = 60
TOLERANCE = 1e-4  # Where sums over rows were cut differently for some steps.
SLOW = ["--device.speed", "0.1"]  # Some 60 ms a step: what takes seconds still happens in training.


class Trials:
    """What trials share: the program, the weights to end with, and what came out."""

    def __init__(self, options):
        self.program = Program()
        self.options = options
        self.lock = threading.Lock()
        self.references = {}
        self.layout_runs = {}

    def reference(self, steps):
        """Final weights of one process that knows nothing of plans."""
        with self.lock:
            if steps not in self.references:
                out = self.program.run_reference(f"reference-{steps}", "--training.steps",
                                                 str(steps))
                self.references[steps] = read_model(newest(out + "/final"))
            return self.references[steps]

    def undisturbed(self, layout, steps):
        """Shape of the plan and final weights of a run of `layout` that nothing happened to."""
        with self.lock:
            if (layout, steps) not in self.layout_runs:
                workers, words = LAYOUTS[layout]
                run = ElasticRun(self.program, f"calm-{layout}-{steps}", workers, *words,
                                 "--training.steps", str(steps))
                assert run.finish() == 0, run.errors()
                self.layout_runs[layout, steps] = (run.shapes(), read_model(newest(run.folder())))
            return self.layout_runs[layout, steps]


class Trial:
    """One run and one fault, or several."""

    def __init__(self, trials, name, layout, seed):
        self.trials = trials
        self.name = name
        self.layout = layout
        self.rng = random.Random(f"{name} {seed}")
        self.steps = STEPS
        self.claims = []
        self.disks = []  # Mounted.
        self.run = None

    def expect(self, claim, holds, detail=""):
        self.claims.append((f"{self.name}: {claim}", bool(holds), detail))

    def start(self, *words, workers=None, **options):
        count, layout_words = LAYOUTS.get(self.layout, (workers, []))
        self.run = ElasticRun(self.trials.program, self.name.replace(" ", "-").replace(":", "-"),
                              workers or count, *layout_words, *PACE, "--training.steps",
                              str(self.steps), *words, **options)
        return self.run

    def wait_somewhere(self, first=2, last=STEPS * 2 // 3):
        """Until some moment in the middle of the run."""
        self.run.wait_for_step(self.rng.randint(first, last))
        time.sleep(self.rng.uniform(0, 0.05))

    def check(self, *culprits, code=0):
        """What must hold of every run, whatever was done to it."""
        run = self.run
        found = run.finish()
        self.expect(f"ends with code {code}", found == code, f"{found}: {run.errors()[-300:]}")
        orphans = run.orphans()
        self.expect("leaves no orphan", not orphans, orphans)
        if found != 0:
            return
        complaints = run.complaints_about_journal(self.steps)
        self.expect("every step is committed once", not complaints, complaints)
        lost = [(each["worker"], each["text"]) for each in run.events("worker.lost")]
        for worker in culprits:
            self.expect(f"w{worker} is named", str(worker) in [each[0] for each in lost], lost)
        weights = read_model(newest(run.folder()))
        worst, tensor = worst_relative(weights, self.trials.reference(self.steps))
        self.expect("has the weights of one process", worst <= TOLERANCE, f"{worst:.1e} {tensor}")
        if self.layout in LAYOUTS and self.layout != "auto":
            shapes, calm = self.trials.undisturbed(self.layout, self.steps)
            if run.shapes() == shapes:
                self.expect("has the bits of an undisturbed run", same_bits(weights, calm))

    def kill_workers(self, count):
        self.start()
        self.wait_somewhere()
        victims = self.rng.sample(range(1, LAYOUTS[self.layout][0] + 1), count)
        for victim in victims:
            self.run.signal(victim)
        self.check(*victims)

    def one_worker(self):
        self.kill_workers(1)

    def two_workers(self):
        self.kill_workers(2)

    def fail_point(self, place, victim, *words):
        """`victim` dies at a place of an ordinary step."""
        self.start(*words, fail_point=f"w{victim}:{place}:{self.rng.randint(1, 4)}")
        self.check(victim)

    def fail_point_of_change(self, place, victim, first, count):
        """`first` is killed, and `victim` dies while the plan changes for that."""
        self.start(fail_point=f"w{victim}:{place}:{count}")
        self.wait_somewhere()
        self.run.signal(first)
        self.check(first, victim)

    def coordinator(self, with_worker=False):
        self.start(apart=True)
        self.wait_somewhere()
        victim = self.rng.randint(1, len(self.run.workers))
        if with_worker:
            self.run.signal(victim)
        self.run.coordinator.kill()
        self.replace_coordinator()
        if not with_worker:
            self.expect("no worker is lost", not self.run.events("worker.lost"))

    def worker_and_coordinator(self):
        self.coordinator(with_worker=True)

    def coordinator_again_and_again(self):
        self.start(apart=True)
        self.run.address()
        for step in (8, 16, 24):
            self.run.wait_for_step(step)
            self.run.coordinator.kill()
            self.run.coordinator.wait()
            self.run.resume()
        self.check()
        codes = [worker.returncode for worker in self.run.workers]
        self.expect("every worker ends with code 0", codes == [0] * len(codes), codes)

    def coordinator_fail_point(self, place, count):
        self.start(apart=True, fail_point=f"coordinator:{place}:{count}")
        self.replace_coordinator()

    def replace_coordinator(self):
        self.run.address()
        code = self.run.coordinator.wait(timeout=60)
        self.expect("the coordinator dies", code == -signal.SIGKILL, code)
        self.run.environment.pop("SKEIN_FAIL_POINT", None)
        self.run.resume()
        self.check()
        terms = self.run.journal("SELECT COUNT(*) FROM terms")[0][0]
        self.expect("its successor has the next term", terms == 2, terms)

    def stopped_past_the_lease(self):
        self.start(*SLOW)
        self.wait_somewhere(2, 10)
        victim = self.rng.randint(1, LAYOUTS[self.layout][0])
        self.run.signal(victim, signal.SIGSTOP)
        start = time.monotonic()
        self.run.wait_for_event("worker.lost")
        took = time.monotonic() - start
        self.expect("is lost soon after its lease", took < LEASE_SECONDS + 1, f"{took:.2f} s")
        self.run.signal(victim, signal.SIGCONT)
        self.check(victim)
        back = [each for each in self.run.events("worker.joined") if "is back" in each["text"]]
        self.expect("comes back", back)

    def stopped_for_less(self):
        self.start(*SLOW)
        self.wait_somewhere(2, 20)
        victim = self.rng.randint(1, LAYOUTS[self.layout][0])
        self.run.signal(victim, signal.SIGSTOP)
        time.sleep(LEASE_SECONDS / 4)
        self.run.signal(victim, signal.SIGCONT)
        self.check()
        self.expect("nobody is lost", not self.run.events("worker.lost"))

    def drain(self):
        self.start(apart=True)
        self.wait_somewhere(5)
        victim = self.rng.randint(1, len(self.run.workers))
        self.run.signal(victim, signal.SIGTERM)
        left = self.run.wait_for_event("worker.left")
        self.check()
        self.expect("w{} leaves".format(victim), left and left is not True and
                    left[0]["worker"] == str(victim), left)
        codes = [worker.returncode for worker in self.run.workers]
        self.expect("every worker ends with code 0", codes == [0] * len(codes), codes)
        self.expect("nobody is lost and no step repeated", not self.run.events("worker.lost") and
                    not self.run.events("run.rolled_back"))

    def join(self):
        self.start(*SLOW, apart=True, workers=2)
        self.wait_somewhere(2, 10)
        self.run.join()
        self.check()
        stages = self.run.events("plan.made")[-1]["stages"]
        self.expect("the newcomer gets work", stages == "3", stages)
        codes = [worker.returncode for worker in self.run.workers]
        self.expect("every worker ends with code 0", codes == [0] * 3, codes)

    def dropped_link(self):
        step = self.rng.randint(5, 20)
        self.start("--chaos", f"link(w1,w3):drop=300ms@step={step}")
        self.check()
        reasons = [each["reason"] for each in self.run.events("plan.quiesced")]
        self.expect("the plan changes for it", reasons)

    def small_disk(self, folder, size):
        """A file system of its own at `folder`; None if we may not make one."""
        os.makedirs(folder, exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            print(f"skip  {self.name}: only root can make a small disk", flush=True)
            return None
        self.disks.append(folder)
        return folder

    def full_disk_for_the_run(self):
        disk = self.small_disk(os.path.join(self.trials.program.folder, "full-disk"), "16m")
        if not disk:
            return
        run = self.start("--checkpoint.interval", "20", dump=os.path.join(disk, "runs"))
        run.wait_for_event("checkpoint.saved")
        filler = os.path.join(disk, "filler")
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        waiting = run.wait_for_event("journal.waiting")
        os.unlink(filler)
        self.check()
        back = run.events("run.rolled_back")
        self.expect("waits, and takes nothing back", waiting and not back, back)

    def fill_disk_of_checkpoints(self):
        self.start(*SLOW, "--checkpoint.interval", "15").wait_for_event("checkpoint.saved")
        return self.small_disk(os.path.join(self.run.folder(), "checkpoint"), "256k")

    def full_disk_for_a_checkpoint(self):
        if not self.fill_disk_of_checkpoints():
            return
        failed = self.run.wait_for_event("checkpoint.failed")
        folder = os.path.join(self.run.folder(), "checkpoint")
        left = wait_until(lambda: not glob.glob(os.path.join(folder, "*.tmp", "*")), 10)
        self.expect("leaves nothing that takes the next one's space", left, glob.glob(folder + "/*/*"))
        self.unmount()
        self.check()
        self.expect("says why", failed and failed is not True and
                    "No space left" in failed[0]["reason"], failed)
        self.expect("nobody is lost", not self.run.events("worker.lost"))

    def full_disk_for_the_last_checkpoint(self):
        if not self.fill_disk_of_checkpoints():
            return
        self.ends_for_lack_of_space("No space left")
        self.unmount()
        self.resume()

    def ends_for_lack_of_space(self, word):
        code = self.run.finish()
        errors = self.run.errors()
        self.expect("ends with code 1 and says why", code == 1 and word in errors,
                    f"{code}: {errors[-300:]}")
        self.expect("leaves no orphan", not self.run.orphans())

    def resume(self):
        """Once there is space again the run goes on from the checkpoint before."""
        verify = self.trials.program.run("verify", self.run.folder())
        self.expect("the checkpoint before is whole", verify.returncode == 0, verify.stderr)
        self.run.coordinator = self.run.spawn("train", "--resume", self.run.folder())
        self.check()

    def unmount(self):
        while self.disks:
            subprocess.run(["umount", "--lazy", self.disks.pop()], check=True)


def short_list():
    """Name, layout, and what is done."""
    for layout in LAYOUTS:
        yield f"{layout} one worker", layout, Trial.one_worker
    for layout in ("2x2", "4x1"):
        yield f"{layout} two workers", layout, Trial.two_workers
    yield "2x2 before-ready", "2x2", lambda t: t.fail_point("before-ready", 3)
    yield "3x1 after-ready", "3x1", lambda t: t.fail_point("after-ready", 2)
    yield "1x3 during-reduction", "1x3", lambda t: t.fail_point("during-reduction", 1)
    for layout in ("1x3", "2x2"):  # While the backward goes on.
        yield f"{layout} between buckets", layout, lambda t: t.fail_point(
            "during-reduction", 2, "--comm.bucket_cap_mb", "0.01")
    yield "4x1 while-applying", "4x1", lambda t: t.fail_point("while-applying", 4)
    yield "3x1 during-checkpoint", "3x1", lambda t: t.fail_point(
        "during-checkpoint", 2, "--checkpoint.interval", "10")
    yield "4x1 during-snapshot", "4x1", lambda t: t.fail_point(
        "during-snapshot", 1, "--elastic.snapshot_interval", "3")
    yield "2x2 before-quiesced", "2x2", lambda t: t.fail_point_of_change("before-quiesced", 4, 1, 2)
    yield "2x2 before-prepared", "2x2", lambda t: t.fail_point_of_change("before-prepared", 2, 3, 2)
    yield "4x1 during-state-send", "4x1", lambda t: t.fail_point_of_change(
        "during-state-send", 4, 3, 1)
    yield "4x1 during-state-fetch", "4x1", lambda t: t.fail_point_of_change(
        "during-state-fetch", 2, 3, 1)
    yield "3x1 before-commit-broadcast", "3x1", lambda t: t.coordinator_fail_point(
        "before-commit-broadcast", 20)
    yield "2x2 before-start", "2x2", lambda t: t.coordinator_fail_point("before-start", 1)
    yield "2x2 coordinator", "2x2", Trial.coordinator
    yield "2x2 coordinator again and again", "2x2", Trial.coordinator_again_and_again
    yield "2x2 worker and coordinator", "2x2", Trial.worker_and_coordinator
    yield "2x2 stopped past the lease", "2x2", Trial.stopped_past_the_lease
    yield "3x1 stopped for less", "3x1", Trial.stopped_for_less
    yield "3x1 drain", "3x1", Trial.drain
    yield "join", None, Trial.join
    yield "2x2 dropped link", "2x2", Trial.dropped_link
    yield "3x1 full disk", "3x1", Trial.full_disk_for_the_run
    yield "3x1 full disk for a checkpoint", "3x1", Trial.full_disk_for_a_checkpoint
    yield "2x2 full disk to the end", "2x2", Trial.full_disk_for_the_last_checkpoint


RANDOM_DEATHS = 6  # So many for each layout, in the long form.


def long_list():
    """What the short form does at one place or on one layout, at all of them."""
    for layout in LAYOUTS:
        for number in range(RANDOM_DEATHS):
            yield f"{layout} one worker {number}", layout, Trial.one_worker
            yield f"{layout} two workers {number}", layout, Trial.two_workers
        for place in ("before-ready", "after-ready", "while-applying"):
            yield f"{layout} {place}", layout, lambda t, place=place: t.fail_point(place, 1)
        for place in ("before-quiesced", "before-prepared"):
            yield f"{layout} {place} of the next", layout, (
                lambda t, place=place: t.fail_point_of_change(place, 1, 3, 2))
        for place, count in (("before-start", 1), ("before-commit-broadcast", 1),
                             ("before-commit-broadcast", STEPS)):
            yield f"{layout} {place} {count}", layout, (
                lambda t, place=place, count=count: t.coordinator_fail_point(place, count))
        yield f"{layout} coordinator alone", layout, Trial.coordinator
        for number in range(RANDOM_DEATHS):
            yield (f"{layout} coordinator, time after time {number}", layout,
                   Trial.coordinator_again_and_again)
        yield f"{layout} coordinator too", layout, Trial.worker_and_coordinator
        yield f"{layout} stopped", layout, Trial.stopped_past_the_lease
        yield f"{layout} drained", layout, Trial.drain
    for layout in ("3x1", "4x1", "2x2", "1x3"):
        yield f"{layout} during-reduction", layout, lambda t: t.fail_point("during-reduction", 1)
        yield f"{layout} during-checkpoint", layout, lambda t: t.fail_point(
            "during-checkpoint", 1, "--checkpoint.interval", "7")


def carry_out(trials, name, layout, fault_action, seed):
    trial = Trial(trials, name, layout, seed)
    start = time.monotonic()
    try:
        fault_action(trial)
    except Exception:  # Any: the other trials go on.
        trial.expect("can be judged", False, traceback.format_exc(limit=3))
    if trial.run:
        trial.run.end()
    trial.unmount()
    with trials.lock:
        broken = [claim for claim in trial.claims if not claim[1]]
        for claim in broken:
            trials.program.expect(*claim)
        if not broken:  # One line, so that what does not hold is found among many trials.
            took = time.monotonic() - start
            trials.program.expect(name, True, f"{len(trial.claims)} claims, {took:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--long", action="store_true", default=LONG)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    trials = Trials(options)
    known = [*short_list(), *(long_list() if options.long else [])]
    chosen = [each for each in known if options.only in each[0]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, layout, fault_action in chosen:
            pool.submit(carry_out, trials, name, layout, fault_action, options.seed)
    trials.program.finish()


main()
