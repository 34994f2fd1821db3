#!/usr/bin/env python3
"""Workers of one run take no orders of another run, whose coordinator answers at the old address;
and a run that is resumed with other keys has them on every worker, or is not resumed."""
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits, worst_relative  # noqa: E402
from elastic_runs import PACE, ElasticRun, read_lines, wait_until  # noqa: E402
from running import SMALL_JOB, Program  # noqa: E402

STEPS = 40
KEYS_STEPS = 60
# Weights do not move by more, in steps that have hardly any learning rate.
STILL = 1e-6


def another_job(program):
    """Another job's coordinator listens where the workers look for theirs, which died."""
    two = ["--parallelism.pipeline_parallel_degree", "2", "--training.steps", str(STEPS), *PACE]
    calm = ElasticRun(program, "calm", 2, *two)
    assert calm.finish() == 0, calm.errors()
    run = ElasticRun(program, "ours", 2, *two, apart=True)
    address = run.address()
    run.wait_for_step(10)
    run.coordinator.kill()
    run.coordinator.wait()
    dump = os.path.join(program.folder, "theirs")
    other = run.spawn("coordinator", SMALL_JOB, "--listen", address, "--workers", "1",
                      "--job.name", "other", "--job.dump_folder", dump, "--optimizer.lr", "1e-2",
                      "--training.steps", "6", "--parallelism.pipeline_parallel_degree", "1")
    named = wait_until(lambda: run.errors().count("this worker serves run small-") >= 2, 15)
    told = run.errors()
    program.expect("both workers say which run they serve, which one is there, and what to do",
                   named and "is run other-" in told and "resume the worker's own run" in told,
                   told[-400:])
    theirs = (glob.glob(os.path.join(dump, "other-*")) or [""])[0]
    events = read_lines(os.path.join(theirs, "events.jsonl"))
    refused = [each["text"] for each in events if each["event"] == "worker.refused"]
    program.expect("the other coordinator refuses them by name, and says so once",
                   len(refused) == 1 and "serves run small-" in refused[0] and
                   "here is run other-" in refused[0], refused)
    steps = [each for each in read_lines(os.path.join(theirs, "metrics.jsonl"))
             if each["kind"] == "step"]
    program.expect("the other run has no step of theirs", not steps, steps)
    program.expect("they live on", all(worker.poll() is None for worker in run.workers))
    newcomer = run.spawn("worker", "--join", address)
    program.expect("the other run trains on a worker of its own",
                   other.wait(timeout=30) == 0 and newcomer.wait(timeout=10) == 0)
    run.resume()
    code = run.finish()
    program.expect("their run goes on with them", code == 0, f"{code}: {run.errors()[-300:]}")
    complaints = run.complaints_about_journal(STEPS)
    program.expect("every step is committed once", not complaints, complaints)
    program.expect("nothing is lost or rolled back",
                   not run.events("worker.lost") and not run.events("run.rolled_back"))
    program.expect("it ends with the bits of a run that nobody disturbed",
                   same_bits(read_model(newest(run.folder())), read_model(newest(calm.folder()))))
    codes = [worker.returncode for worker in run.workers]
    program.expect("every worker ends with code 0", codes == [0, 0], codes)
    run.end()


def other_keys(program):
    """The learning rate is changed when the run is resumed, while its workers live."""
    run = ElasticRun(program, "keys", 2, "--parallelism.pipeline_parallel_degree", "1",
                     "--parallelism.data_parallel_replicate_degree", "2", "--training.steps",
                     str(KEYS_STEPS), "--checkpoint.interval", "20",
                     "--lr_scheduler.warmup_steps", "2", "--device.speed", "0.1", apart=True)
    address = run.address()
    run.wait_for_step(12)
    run.coordinator.kill()
    run.coordinator.wait()
    refuse_keys(program, run)
    run.coordinator = run.spawn("coordinator", "--resume", run.folder(), "--listen", address,
                                "--optimizer.lr", "1e-12")
    assert run.wait_for_event("checkpoint.saved"), run.errors()
    changed = [(each["key"], each["before"], each["now"])
               for each in run.events("run.reconfigured")]
    program.expect("the change is in the log", changed == [("optimizer.lr", "0.001", "1e-12")],
                   changed)
    took = sorted(each["worker"] for each in run.events("worker.reconfigured"))
    program.expect("both survivors take the new configuration", took == ["1", "2"], took)
    program.expect("nobody is lost, and no step is done again",
                   not run.events("worker.lost") and not run.events("run.rolled_back"))
    run.join()  # Takes the place of the leader, which dies.
    assert wait_until(lambda: len(run.events("worker.joined")) >= 5, 20), run.errors()
    run.signal(1)
    code = run.finish()
    program.expect("the run ends well", code == 0, f"{code}: {run.errors()[-300:]}")
    checkpoint = os.path.join(run.folder(), "checkpoint", "step-%08d")
    before, after = read_model(checkpoint % 20), read_model(checkpoint % KEYS_STEPS)
    worst, name = worst_relative(after, before)
    program.expect("the weights stay as the new rate says, on every replica", worst <= STILL,
                   f"{worst:.1e} {name}")
    rates = {each["lr"] for each in run.steps() if each["step"] > 20}
    program.expect("and as the metrics say", max(rates) <= 1e-12, rates)
    with open(os.path.join(run.folder(), "config.resolved.toml"), encoding="utf-8") as file:
        program.expect("who resumes it next has the new rate", "lr = 1e-12" in file.read())
    run.end()


def refuse_keys(program, run):
    def state():
        with open(os.path.join(run.folder(), "config.resolved.toml"), encoding="utf-8") as file:
            return file.read(), run.journal("SELECT COUNT(*) FROM terms")

    before = state()
    result = program.run("coordinator", "--resume", run.folder(), "--debug.seed", "7",
                         "--training.global_batch_size", "32", "--optimizer.lr", "1e-2")
    program.expect("keys that may not change are refused, with both values of each",
                   result.returncode == 2 and "debug.seed = 7 (was 1337)" in result.stderr and
                   "training.global_batch_size = 32 (was 16)" in result.stderr and
                   "optimizer.lr" not in result.stderr, result.stderr.strip())
    program.expect("before anything is started", state() == before)
    program.expect("the workers do not hear of it",
                   all(worker.poll() is None for worker in run.workers))


def main():
    program = Program()
    another_job(program)
    other_keys(program)
    program.finish()


main()
