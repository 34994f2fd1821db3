#!/usr/bin/env python3
"""Jobs that share workers: each trains exactly as if it were alone, whatever becomes of the others."""
import glob
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits, worst_relative  # noqa: E402
from elastic_runs import PACE, ElasticRun, read_lines, wait_until  # noqa: E402
from running import SMALL_JOB, Program  # noqa: E402

STEPS = 40
CLOSE = 1e-4  # What other orders of sums may make of the weights.
TWO_STAGES = ["--parallelism.pipeline_parallel_degree", "2"]


def another_job(program, name, more="", **keys):
    """The small job under another name, with other keys, and with more text behind; returns its path."""
    with open(SMALL_JOB, encoding="utf-8") as file:
        text = file.read()
    for key, value in {"name": f'"{name}"', **keys}.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert count == 1, f"{key} is {count} times in the small job"
    path = os.path.join(program.folder, name + ".toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + more)
    return path


def run_folder(dump, name):
    return (sorted(glob.glob(os.path.join(dump, name + "-2*"))) or [""])[-1]


def together(program):
    """Jobs of different models in one command: bit for bit what each is alone."""
    jobs = {"small": SMALL_JOB,
            "deep": another_job(program, "deep", n_layer=6, lr="2e-3"),
            "wide": another_job(program, "wide", n_embd=96, global_batch_size=8),
            "often": another_job(program, "often", "\n[sharing]\nweight = 3\n", n_layer=2),
            "first": another_job(program, "first", "\n[sharing]\npriority = 5\n", n_layer=3),
            "mixed": another_job(program, "mixed", "\n[sharing]\ntakes_turns = false\n", n_layer=5)}
    for title, words, names in (
            ("two jobs in pipelines of two", TWO_STAGES, ["small", "deep"]),
            ("three jobs on two replicas each",
             ["--parallelism.pipeline_parallel_degree", "1",
              "--parallelism.data_parallel_replicate_degree", "2"], ["small", "deep", "wide"]),
            ("jobs of unlike weights", TWO_STAGES, ["often", "wide"]),
            ("a job, a more important one and one without turns", TWO_STAGES, ["small", "first", "mixed"])):
        folder = os.path.join(program.folder, title.replace(" ", "-"))
        shared = os.path.join(folder, "shared")
        for name in names:
            alone = program.run("train", jobs[name], "--workers", "2", "--quiet",
                                "--job.dump_folder", os.path.join(folder, "alone"), *words)
            assert alone.returncode == 0, alone.stderr
        result = program.run("train", *[jobs[name] for name in names], "--workers", "2",
                             "--job.dump_folder", shared, *words)
        program.expect(f"{title}: done", result.returncode == 0, result.stderr[-300:])
        for name in names:
            weights = [read_model(newest(run_folder(dump, name)))
                       for dump in (os.path.join(folder, "alone"), shared)]
            program.expect(f"{title}: {name} has the bits that it has alone", same_bits(*weights))
        lines = result.stdout.splitlines()
        labels = {line.split(":")[0] for line in lines if line and "time line" not in line}
        stems = {os.path.splitext(os.path.basename(jobs[name]))[0] for name in names}
        program.expect(f"{title}: each line says whose it is", labels == stems, labels)
        waits = [line for name in names
                 for line in open(os.path.join(run_folder(shared, name), "metrics.jsonl"),
                                  encoding="utf-8") if '"stage_device_wait_seconds"' in line]
        program.expect(f"{title}: the metrics say how long it waited for the device", waits)
        others = [line["goodput"]["other_jobs"] for name in names
                  for line in read_lines(os.path.join(run_folder(shared, name), "metrics.jsonl"))
                  if "goodput" in line]
        program.expect(f"{title}: goodput has it apart", max(others) > 0, others)


class SharedRuns:
    """Coordinators of two jobs, and workers that serve both."""

    def __init__(self, program, name, workers, first, second, steps=STEPS):
        jobs = [SMALL_JOB, another_job(program, "deep", n_layer=6)]
        self.runs = [
            ElasticRun(program, f"{name}-{n}", 0, *PACE, "--training.steps", str(steps),
                       *words, job=job, apart=True, waits_for=workers)
            for n, (job, words) in enumerate(zip(jobs, (first, second)))]
        for _ in range(workers):
            self.add_worker()

    def add_worker(self):
        joins = [word for run in self.runs for word in ("--join", run.address())]
        worker = self.runs[0].spawn("worker", *joins)
        self.runs[0].workers.append(worker)
        return worker

    def finish(self):
        return [run.finish() for run in self.runs]

    def end(self):
        for run in self.runs:
            run.end()


def calm(program, job, words, steps=STEPS):
    run = ElasticRun(program, "calm-" + os.path.basename(job), 2, *PACE, "--training.steps",
                     str(steps), *words, job=job)
    assert run.finish() == 0, run.errors()
    return read_model(newest(run.folder()))


def calm_both(program):
    return [calm(program, SMALL_JOB, TWO_STAGES),
            calm(program, another_job(program, "deep", n_layer=6), TWO_STAGES)]


def expect_like_alone(program, title, run, alone, bits=False):
    complaints = run.complaints_about_journal(STEPS)
    program.expect(f"{title}: every step is committed once", not complaints, complaints)
    weights = read_model(newest(run.folder()))
    distance = worst_relative(weights, alone)
    holds = same_bits(weights, alone) if bits else distance[0] < CLOSE
    program.expect(f"{title}: its weights are those of the job alone", holds, distance)


def faults(program):
    """A worker of both is killed, a new one joins both, and one is drained."""
    alone = calm_both(program)
    both = SharedRuns(program, "faults", 2, TWO_STAGES, TWO_STAGES)
    both.runs[0].wait_for_step(5)
    both.runs[0].signal(2)
    both.runs[1].wait_for_event("worker.lost")
    both.add_worker()
    for run in both.runs:
        run.wait_for_step(12)
    os.kill(both.runs[0].pid(1), signal.SIGTERM)
    codes = both.finish()
    program.expect("faults: both runs end well", codes == [0, 0],
                   f"{codes}: {both.runs[0].errors()[-300:]} {both.runs[1].errors()[-300:]}")
    for n, run in enumerate(both.runs):
        expect_like_alone(program, f"faults: job {n + 1}", run, alone[n])
        program.expect(f"faults: job {n + 1} has lost a worker and let one go",
                       run.events("worker.lost") and run.events("worker.left"),
                       sorted({each["event"] for each in run.events()}))
    both.end()


def a_coordinator_dies(program):
    """The other job goes on as if nothing had happened; then the first is resumed."""
    alone = calm_both(program)
    both = SharedRuns(program, "dies", 2, TWO_STAGES, TWO_STAGES)
    first, second = both.runs
    first.wait_for_step(5)
    first.coordinator.kill()
    first.coordinator.wait()
    had = second.steps_done()
    second.wait_for_step(min(STEPS, had + 15))
    code = second.finish()
    program.expect("a coordinator dies: the other job ends well", code == 0, second.errors()[-300:])
    expect_like_alone(program, "a coordinator dies: the other job", second, alone[1], bits=True)
    program.expect("a coordinator dies: the other job has made one plan",
                   len(second.events("plan.made")) == 1)
    program.expect("a coordinator dies: the workers live on for the first",
                   all(worker.poll() is None for worker in first.workers))
    first.resume()
    code = first.finish()
    program.expect("a coordinator dies: its job ends well when it is resumed", code == 0,
                   first.errors()[-300:])
    expect_like_alone(program, "a coordinator dies: its job", first, alone[0], bits=True)
    both.end()


def unlike_modes(program):
    """A job with local updates beside a synchronous one, and one that ends early."""
    local = ["--parallelism.pipeline_parallel_degree", "1",
             "--parallelism.data_parallel_replicate_degree", "2", "--sync.policy", "sdpipe",
             "--sync.round_steps", "10"]
    both = SharedRuns(program, "modes", 2, TWO_STAGES, local)
    codes = both.finish()
    program.expect("unlike modes: both end well", codes == [0, 0], codes)
    expect_like_alone(program, "unlike modes: the synchronous job", both.runs[0],
                      calm(program, SMALL_JOB, TWO_STAGES), bits=True)
    losses = [line["loss"] for line in both.runs[1].steps()]
    program.expect("unlike modes: the other one learns", losses[-1] < losses[0], losses)
    both.end()


def refusals(program):
    """Jobs that cannot be together are refused by key, and leave nothing behind."""
    two = another_job(program, "two", "\n[device]\nthreads = 2\n")
    dump = os.path.join(program.folder, "refused")
    result = program.run("train", SMALL_JOB, two, "--job.dump_folder", dump)
    program.expect("jobs that want unlike devices are refused by key",
                   result.returncode == 2 and "device.threads = 2" in result.stderr and
                   len(result.stderr.strip().splitlines()) == 1, result.stderr)
    program.expect("nothing is left behind", not glob.glob(os.path.join(dump, "*-*")))
    result = program.run("train", SMALL_JOB, SMALL_JOB, "--job.dump_folder", dump)
    program.expect("a job that is given twice is refused", result.returncode == 2 and "twice" in result.stderr,
                   result.stderr)
    result = program.run("worker", "--join", "127.0.0.1:1,127.0.0.1:2")
    program.expect("two addresses in one --join are refused", result.returncode == 2 and
                   "give --join once for each" in result.stderr, result.stderr)
    result = program.run("coordinator", SMALL_JOB, two, "--job.dump_folder", dump)
    program.expect("a coordinator runs one job", result.returncode == 2 and
                   "start one for each" in result.stderr, result.stderr)


def a_job_that_has_the_device(program):
    """Beside a more important job that always computes, the other one goes on, and is not taken for stuck."""
    sleep = ("\n[device]\ntype = \"sleep\"\nsleep_forward_us = 5000\nsleep_backward_us = 10000\n"
             "[elastic]\nheartbeat_timeout_seconds = 2\nheartbeat_interval_seconds = 0.25\n")
    busy = another_job(program, "busy", sleep + "[sharing]\npriority = 5\n", steps=1000)
    calm_job = another_job(program, "patient", sleep, steps=1000)
    dump = os.path.join(program.folder, "saturated")
    both = subprocess.Popen([program.skein, "train", busy, calm_job, "--workers", "1", "--job.dump_folder", dump,
                             "--comm.train_timeout_seconds", "3", "--parallelism.pipeline_parallel_degree", "1", "--quiet"], cwd=program.folder,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def steps(name):
        return len(read_lines(os.path.join(run_folder(dump, name), "metrics.jsonl")))
    wait_until(lambda: steps("patient") >= 1 and steps("busy") >= 20, 60)
    done = steps("busy"), steps("patient")
    program.expect("a job that has the device: the other one goes on", done[1] >= 1 and done[0] > 5 * done[1], done)
    events = read_lines(os.path.join(run_folder(dump, "patient"), "events.jsonl"))
    lost = [each["text"] for each in events if each["event"] in ("worker.lost", "step.stuck")]
    program.expect("a job that has the device: waiting for it is no fault of a worker", not lost, lost)
    both.send_signal(signal.SIGINT)
    code = both.wait(timeout=60)
    program.expect("a job that has the device: both stop in order", code == 75, f"{code}: {both.stderr.read()[-300:]}")


def latest(program):
    """Jobs that share a dump folder each go on with their own latest run."""
    jobs = [SMALL_JOB, another_job(program, "deep", n_layer=6)]
    dump = os.path.join(program.folder, "latest-of-both")
    words = ["--workers", "1", "--parallelism.pipeline_parallel_degree", "1", "--job.dump_folder", dump, "--quiet"]
    assert program.run("train", *jobs, *words).returncode == 0
    result = program.run("train", "--resume-latest", *jobs, *words)
    program.expect("the latest run of each job has nothing left to do",
                   result.returncode == 0 and result.stdout.count("nothing to do") == 2, result.stdout)
    folders = glob.glob(os.path.join(dump, "*-2*"))
    program.expect("and none begins anew", len(folders) == 2, folders)
    result = program.run("train", *[word for folder in folders for word in ("--resume", folder)], "--workers", "1",
                         "--quiet")
    program.expect("nor has a run that is named beside another",
                   result.returncode == 0 and result.stdout.count("nothing to do") == 2,
                   result.stdout + result.stderr)


def memory(program):
    """A job that does not fit beside the other is refused with the bytes that are missing."""
    # None is done before the other one asks.
    words = ["--parallelism.pipeline_parallel_degree", "1", "--device.memory_limit_mb", "12",
             "--comm.init_timeout_seconds", "5", "--device.speed", "0.1"]
    both = SharedRuns(program, "memory", 1, words, words)
    refused = wait_until(lambda: [run for run in both.runs if run.events("worker.failed")], 20)
    told = refused[0].events("worker.failed")[0]["text"] if refused else ""
    program.expect("memory: one job is refused with the bytes that are missing",
                   "bytes are missing" in told, told)
    others = [run for run in both.runs if refused and run is not refused[0]]
    codes = [run.finish() for run in others]
    program.expect("memory: the other goes on", codes == [0], codes)
    both.end()


def main():
    program = Program()
    for trial in (together, refusals, faults, a_coordinator_dies, unlike_modes, a_job_that_has_the_device,
                  latest, memory):
        if len(sys.argv) < 4 or sys.argv[3] in trial.__name__:
            trial(program)
    program.finish()


main()
