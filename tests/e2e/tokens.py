#!/usr/bin/env python3
"""Steps that are pulled as tokens, with real processes: whoever comes to which token, whoever is slow, stops,
dies or joins, and whatever the policy is later or was before, the run ends with the weights of one process."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, same_bits, worst_relative  # noqa: E402
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import LONG, Program  # noqa: E402

STEPS = 40
TOLERANCE = 1e-4
TOKENS = ["--sync.policy", "tokens"]
UNTIED = ["--model.tie_word_embeddings", "false"]
TWO = [*TOKENS, "--tokens.samples", "[1, 4]"]
THREE = [*TOKENS, "--parallelism.layout", "[1, 2, 1]", "--tokens.samples", "[1, 2, 4]"]
# Name, workers, words. The first job is one sub-model; others leave out a policy, or limit workers.
SHAPES = [
    ("one sub-model", 3, [*TOKENS, "--tokens.samples", "[2]"]),
    ("two sub-models", 4, [*TWO, "--tokens.ahead", "3"]),
    ("three sub-models", 5, THREE),
    ("few may train the last", 4, [*THREE, "--tokens.workers", "[0, 0, 1]"]),
    ("an embedding that is not tied", 4, [*THREE, *UNTIED]),
    ("oldest first, one bucket", 3,
     [*THREE, "--tokens.depth_first", "false", "--tokens.own_buckets", "false", "--tokens.ahead", "1"]),
    ("what the planner chooses", 3, [*TOKENS, "--parallelism.pipeline_parallel_degree", "auto"]),
    ("a worker of a quarter of the speed", 3, [*THREE, "--device.speeds", "[0.4, 0.4, 0.1]"]),
]
# Plain SGD, so that weights move by their gradients; a step of that rate by little else.
PLAIN = ["--training.max_norm", "0", "--optimizer.name", "sgd", "--optimizer.momentum", "0",
         "--optimizer.weight_decay", "0", "--lr_scheduler.warmup_steps", "0", "--lr_scheduler.decay_type", "none",
         "--validation.batches", "0"]
RATE = 1000.0
ONE_STEP = [*PLAIN, "--training.steps", "1", "--optimizer.lr", str(RATE)]
TWENTY_STEPS = [*PLAIN, "--training.steps", "20", "--optimizer.lr", "0.1"]
CLOSE = 1e-5  # A distance, by each tensor's norm.
SLOW = ["--device.speed", "0.1", "--elastic.heartbeat_timeout_seconds", "3"]


def check(program, reference, name, run, culprits=()):
    code = run.finish()
    program.expect(f"{name}: ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
    if code != 0:
        return
    complaints = run.complaints_about_journal(STEPS)
    program.expect(f"{name}: every step is committed once", not complaints, complaints)
    lost = [each["worker"] for each in run.events("worker.lost")]
    for worker in culprits:
        program.expect(f"{name}: w{worker} is lost", str(worker) in map(str, lost), lost)
    worst, tensor = worst_relative(read_model(newest(run.folder())), reference)
    program.expect(f"{name}: the weights of one process", worst <= TOLERANCE, f"{worst:.1e} {tensor}")


def kill(run):
    run.wait_for_step(8)
    run.signal(2)
    return [2]


def stop(run):
    """Others have its tokens when its lease is over; it comes back to a run that went on."""
    run.wait_for_step(6)
    pid = run.pid(3)
    run.signal(3, signal.SIGSTOP)
    wait_until(lambda: "3" in [str(each["worker"]) for each in run.events("worker.lost")], 30)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    return [3]


def pause(run):
    run.wait_for_step(6)
    run.signal(1, signal.SIGSTOP)
    time.sleep(1)
    run.signal(1, signal.SIGCONT)
    return []


def join(run):
    run.wait_for_step(5)
    run.join("--speed", "0.1")
    run.wait_for_event("run.continued")
    assert any(str(each["worker"]) == "5" for each in run.events("worker.joined")), run.errors()
    run.wait_for_step(15)
    run.signal(1)
    return [1]


def drain(run):
    """A worker that is asked to leave does so between two steps: none is done again."""
    run.wait_for_step(6)
    run.signal(2, signal.SIGTERM)
    left = run.wait_for_event("worker.left")
    assert left and not run.events("worker.lost") and not run.events("run.rolled_back"), run.errors()
    return []


def resume(run):
    """Another coordinator in place of one that died goes on with its workers."""
    run.address()
    run.wait_for_step(8)
    run.coordinator.kill()
    run.coordinator.wait()
    run.resume()
    return []


def kill_and_resume(run):
    culprits = kill(run)
    run.wait_for_event("run.continued")
    run.wait_for_step(14)
    return [*culprits, *resume(run)]


def all_of_it(run):
    """Eight workers: one dies, one is stopped past its lease, two join, another one dies."""
    kill(run)
    run.join("--speed", "0.1")
    run.wait_for_step(14)
    stopped = stop(run)
    run.join("--speed", "0.1")
    run.wait_for_step(30)
    run.signal(4)
    return [2, *stopped, 4]


def tries_plans(program):
    """On devices that only sleep several plans promise the same; each is tried, and again by those whom a
    loss leaves."""
    for name, workers, steps in [("tries", 3, 20), ("tries-again", 4, 200)]:
        run = ElasticRun(program, name, workers, *TOKENS, "--parallelism.pipeline_parallel_degree", "auto",
                         "--tokens.trial_steps", "2", "--training.steps", str(steps), "--device.type", "sleep",
                         "--device.sleep_forward_us", "500", "--device.sleep_backward_us", "1000",
                         apart=name != "tries")
        try:
            if name != "tries":
                run.wait_for_event("plan.tried")
                run.wait_for_step(15)
                run.signal(2)
            code = run.finish()
            events = [(each["event"], each["text"]) for each in run.events()]
            lost = [n for n, (event, _) in enumerate(events) if event == "worker.lost"]
            tried = [text for event, text in events[lost[-1] if lost else 0:] if event == "plan.tried"]
            complaints = run.complaints_about_journal(steps)
            program.expect(f"{name}: plans are tried, the fastest stays, and every step is committed once",
                           code == 0 and not complaints and len(tried) > 1 and len(lost) == workers - 3 and
                           tried[0].startswith("candidate 2 of ") and "the fastest" in tried[-1],
                           f"code {code}: {tried} {complaints} {run.errors()[-200:]}")
        finally:
            run.end()


def has_the_same_bits(program, reference):
    """With `tokens.reproducible`, three workers undisturbed, and four: one joins and one dies, or one dies and another
    coordinator goes on."""
    for shape, words, disturb in [("three sub-models", THREE, join), ("two sub-models", TWO, kill_and_resume)]:
        models = []
        for fault in (None, disturb):
            name = f"reproducible, {shape}, {fault.__name__ if fault else 'calm'}"
            run = ElasticRun(program, name.replace(" ", "-").replace(",", ""), 4 if fault else 3, *words,
                             *(SLOW if fault else []), "--tokens.reproducible", "true", "--training.steps", str(STEPS),
                             apart=fault is not None)
            try:
                culprits = fault(run) if fault else []
                check(program, reference, name, run, culprits)
                models.append(read_model(newest(run.folder())))
                program.expect(f"{name}: all compute on like devices", not run.events("worker.unlike"))
            finally:
                run.end()
        program.expect(f"{shape}: reproducible tokens give the same bits, whoever computes them, is lost or joins",
                       same_bits(*models), worst_relative(*models))


def has_the_gradients_of_one_process(program):
    """Those of one step, by which all weights move, and twenty steps, whatever the sub-models and policies are,
    and with weights that differ, as unlike workers come to unlike numbers of samples."""
    ends = {}
    for tied in (True, False):
        words = [] if tied else UNTIED
        out = program.run_reference(f"one-{tied}", *ONE_STEP, *words)
        start = read_model(newest(out + "/initial"))
        ends[tied] = [(ONE_STEP, start, read_model(newest(out + "/final")))]
        out = program.run_reference(f"twenty-{tied}", *TWENTY_STEPS, *words)
        ends[tied].append((TWENTY_STEPS, None, read_model(newest(out + "/final"))))
    for name, workers, words in SHAPES:
        for steps, start, end in ends[UNTIED[0] not in words]:
            claim = f"{name}: {'the gradients of one process' if start else 'twenty steps of one process'}"
            folder = claim.replace(" ", "-").replace(",", "").replace(":", "")
            result, run = program.train(folder, "--workers", str(workers), *words, *steps)
            if result.returncode != 0:
                program.expect(claim, False, result.stderr.strip()[-300:])
                continue
            ours = read_model(newest(run))
            if start:
                ours, end = ({key: start[key] - each[key] for key in start} for each in (ours, end))
            worst, tensor = worst_relative(ours, end)
            program.expect(claim, worst <= CLOSE, f"{worst:.1e} {tensor}")


def goes_on_with_another_policy(program):
    """The same weights after twenty steps, the first ten of them by tokens, or the last ten."""
    out = program.run_reference("twenty", *TWENTY_STEPS)
    reference = read_model(newest(out + "/final"))
    by_tokens = ["--sync.policy", "tokens", "--tokens.samples", "[1, 2, 4]"]
    together = ["--sync.policy", "allreduce", "--tokens.samples", "[]"]
    for name, first, then in [("tokens, then allreduce", by_tokens, together),
                              ("allreduce, then tokens", together, by_tokens)]:
        result, run = program.train(name.replace(" ", "-").replace(",", ""), "--workers", "3",
                                    "--parallelism.layout", "[1, 2, 1]", *first, *TWENTY_STEPS, "--training.steps", "10")
        if result.returncode == 0:
            result = program.run("train", "--resume", run, *then, "--training.steps", "20")
        if result.returncode != 0:
            program.expect(name, False, result.stderr.strip()[-300:])
            continue
        worst, tensor = worst_relative(read_model(newest(run)), reference)
        program.expect(f"{name}: the weights of one process", worst <= CLOSE, f"{worst:.1e} {tensor}")


def main():
    program = Program()
    tries_plans(program)
    has_the_gradients_of_one_process(program)
    goes_on_with_another_policy(program)
    references = {}
    for tied in (True, False):
        out = program.run_reference(f"reference-{tied}", *([] if tied else UNTIED), "--training.steps", str(STEPS))
        references[tied] = read_model(newest(out + "/final"))
    for name, workers, words in SHAPES:
        reference = references[UNTIED[0] not in words]
        run = ElasticRun(program, name.replace(" ", "-").replace(",", ""), workers, *words,
                         "--training.steps", str(STEPS))
        try:
            check(program, reference, name, run)
        finally:
            run.end()
    has_the_same_bits(program, references[True])
    faults = [kill, stop, join, drain, resume, pause]
    for fault in faults if LONG else faults[:-1]:
        run = ElasticRun(program, fault.__name__, 4, *THREE, *SLOW, "--training.steps", str(STEPS),
                         apart=True)
        try:
            culprits = fault(run)
            check(program, references[True], fault.__name__, run, culprits)
        finally:
            run.end()
    wide = [*THREE, *SLOW, "--model.vocab_size", "4096", "--tokens.workers", "[0, 0, 2]"]
    for name, words in [("eight", THREE + SLOW), ("eight-wide", wide)] if LONG else []:
        if words is wide:
            out = program.run_reference("reference-wide", "--model.vocab_size", "4096", "--training.steps", str(STEPS))
            references[True] = read_model(newest(out + "/final"))
        run = ElasticRun(program, name, 8, *words, "--training.steps", str(STEPS), apart=True)
        try:
            culprits = all_of_it(run)
            check(program, references[True], f"{name}: all of it", run, culprits)
        finally:
            run.end()
    program.finish()


main()
