#!/usr/bin/env python3
"""Pipeline replicas that train under local updates, under each policy and real faults: every sample is done
once, and a death in a round quiesces nobody. `--only WORD`, `--seed N`, `--jobs N`."""
import argparse
import concurrent.futures
import os
import random
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_index, read_model, same_bits, worst_relative  # noqa: E402
from elastic_runs import PACE, ElasticRun  # noqa: E402
from running import Program  # noqa: E402

POLICIES = ("sdpipe", "partial_reduce", "prague", "adpsgd", "adpsgd_paired", "overlapped", "auto",
            "ps", "ps_async", "ps_bounded", "hetpipe", "grouped_ps")
PIPELINE_SAMPLES = 4  # A pipeline replica's iteration has so many.
STOPPED = 75
PATIENCE_SECONDS = 150  # With a machine that has other things to do.
# A device that takes its time whatever else the machine does, and learns nothing.
SLEEP = ["--device.type", "sleep", "--device.sleep_forward_us", "4000",
         "--device.sleep_backward_us", "8000", "--elastic.watch_speeds", "false"]


def layout_words(stages, pipelines):
    return ["--parallelism.pipeline_parallel_degree", str(stages),
            "--parallelism.data_parallel_replicate_degree", str(pipelines),
            "--training.micro_batch_size", str(2 * pipelines),
            "--training.global_batch_size", str(PIPELINE_SAMPLES * pipelines)]


def claims_words(claims):
    """Several claims go through a pipeline only if no stage waits for another's part of the embedding."""
    tied = [] if claims == 1 else ["--model.tie_word_embeddings", "false"]
    return ["--sync.claims_in_flight", str(claims), *tied]


class Trial:
    """One run, or several, and what must hold of them."""

    def __init__(self, program, name, seed):
        self.program = program
        self.name = name
        self.rng = random.Random(f"{name} {seed}")
        self.claims = []
        self.runs = []
        self.run = None

    def expect(self, claim, holds, detail=""):
        self.claims.append((f"{self.name}: {claim}", bool(holds), detail))

    def start(self, stages, pipelines, steps, *words, policy="sdpipe", round=20, **options):
        self.batch = PIPELINE_SAMPLES * pipelines
        self.steps = steps
        name = f"{self.name}-{len(self.runs)}".replace(" ", "-")
        self.run = ElasticRun(self.program, name, stages * pipelines, *layout_words(stages, pipelines),
                              "--sync.policy", policy, "--sync.round_steps", str(round),
                              "--training.steps", str(steps), *words, **options)
        self.runs.append(self.run)
        return self.run

    def check(self, code=0, steps=None, learns=True):
        """What must hold of every run, whatever was done to it."""
        run = self.run
        found = run.finish(PATIENCE_SECONDS)
        self.expect(f"ends with code {code}", found == code, f"{found}: {run.errors()[-300:]}")
        orphans = run.orphans()
        self.expect("leaves no orphan", not orphans, orphans)
        complaints = self.complaints(self.steps if steps is None else steps)
        self.expect("every sample is done once", not complaints, complaints)
        losses = [line["loss"] for line in run.steps()]
        if learns and len(losses) > 1:
            self.expect("the loss falls", losses[-1] < losses[0], losses)

    def complaints(self, steps):
        """Records follow each other without a gap, to the end, and pipeline replicas did what they say."""
        rows = self.run.journal("SELECT step, first_sample, sample_count FROM commits "
                                "ORDER BY step")
        found = []
        end = 0
        for step, first, count in rows:
            if first != end or (step + 1) * self.batch != first + count:
                found.append(f"step {step}: samples {first} + {count} after {end}")
            end = first + count
        if steps and end != steps * self.batch:
            found.append(f"{end} samples of {steps} steps of {self.batch}")
        for line in self.run.steps():
            if sum(line.get("pipeline_samples", [line["samples"]])) != line["samples"]:
                found.append(f"step {line['step']}: {line['pipeline_samples']}")
        return found[:3]

    def wait_in_round(self, first=1):
        """Until some moment behind the first rounds."""
        self.run.wait_for_step(first, PATIENCE_SECONDS)
        time.sleep(self.rng.uniform(0.05, 0.25))

    def runs_to_the_end(self, policy, stages, pipelines):
        self.start(stages, pipelines, 40, policy=policy, round=10)
        self.check()
        loss = self.run.steps()[-1]["loss"]
        mean = self.synchronous_loss(stages, pipelines)
        self.expect("learns about as much as all together", abs(loss / mean - 1) < 0.1,
                    f"{loss:.3f} and {mean:.3f}")

    def adasum_of_rounds(self, stages, pipelines):
        """Rounds end with Adasum of what each pipeline replica has added, also when one of them dies."""
        words = ["--sync.round_reducer", "adasum", "--sync.local_steps", "1000"]
        self.start(stages, pipelines, 40, *words, policy="overlapped", round=5)
        self.check()
        loss = self.run.steps()[-1]["loss"]
        mean = self.synchronous_loss(stages, pipelines)
        self.expect("learns at least about as much as all together", loss < 1.1 * mean, f"{loss:.3f} and {mean:.3f}")
        self.start(stages, pipelines, 80, *PACE, *words, policy="overlapped", round=20)
        self.wait_in_round(20)
        self.run.signal(1)
        self.run.wait_for_event("worker.lost")
        self.check()

    def synchronous_loss(self, stages, pipelines):
        """Of the last steps of the run in which all meet in every step; it is done once."""
        with self.program.lock:
            if (stages, pipelines) not in self.program.losses:
                self.start(stages, pipelines, 40, policy="allreduce")
                self.check()
                losses = [line["loss"] for line in self.run.steps()][-10:]
                self.program.losses[stages, pipelines] = sum(losses) / len(losses)
            return self.program.losses[stages, pipelines]

    def by_a_server(self, policy, stages, pipelines, *words):
        """With SGD a server that waits for all makes the updates of the synchronous run; but who would be
        the last one to end leaves its last samples of a round to the others, who then do them one by one."""
        weights = []
        plain = ["--optimizer.name", "sgd", "--optimizer.momentum", "0", "--optimizer.lr", "0.1",
                 "--training.max_norm", "0"]
        for each, more in (("allreduce", []), (policy, words)):
            self.start(stages, pipelines, 20, *plain, *more, policy=each, round=20)
            self.check()
            weights.append(read_model(newest(self.run.folder())))
        worst, tensor = worst_relative(*weights)
        self.expect("has about the weights of the synchronous run", worst <= 0.05,
                    f"{worst:.1e} {tensor}")

    def several_claims(self, policy, stages, pipelines, claims):
        self.start(stages, pipelines, 40, *claims_words(claims), policy=policy,
                   round=20)
        self.check()
        loss, delays = (self.run.steps()[-1][key] for key in ("loss", "stage_weight_delay"))
        mean = self.synchronous_loss(stages, pipelines)
        self.expect("learns about as much as all together", abs(loss / mean - 1) < 0.15,
                    f"{loss:.3f} and {mean:.3f}")
        self.expect("weights of the last stage are those of the forward", delays[-1] == 0, delays)
        self.expect("those of the first one are older, as planned",
                    0 < delays[0] < claims and delays == sorted(delays, reverse=True), delays)

    def kill_with_claims(self, claims):
        """A worker dies while its pipeline replica has several claims."""
        run = self.start(3, 2, 120, *PACE, *claims_words(claims), round=40,
                         apart=True)
        self.wait_in_round(40)
        victim = self.rng.randint(1, 6)
        run.signal(victim)
        run.wait_for_event("worker.lost")
        run.join()
        self.check()
        self.expect_no_early_quiesce(victim)
        codes = sorted(worker.returncode for worker in run.workers)
        self.expect("every other worker ends with code 0", codes == [-signal.SIGKILL] + [0] * 6,
                    codes)

    def refusals(self):
        """What several claims do not go with is said in one line."""
        for name, words, why in (
                ("allreduce", [], "choose a policy of pipeline replicas"),
                ("a schedule that ends with a flush", ["--sync.policy", "sdpipe",
                 "--parallelism.pipeline_parallel_schedule", "GPipe"], "as 1F1B"),
                ("auto with a layout of several stages", ["--sync.policy", "auto",
                 "--parallelism.pipeline_parallel_degree", "2", "--model.tie_word_embeddings", "false"],
                 "as they were measured")):
            result, _ = self.program.train("refused", "--sync.claims_in_flight", "2", *words)
            self.expect(f"{name} is refused", result.returncode == 2 and why in result.stderr and
                        result.stderr.count("\n") == 1, result.stderr)

    def one_pipeline(self, stages):
        """The synchronous run, bit for bit: weights and the optimizer's state."""
        weights, moments = [], []
        for policy in ("allreduce", "sdpipe"):
            self.start(stages, 1, 20, policy=policy, round=7)
            self.check()
            saved = newest(self.run.folder())
            weights.append(read_model(saved))
            moments.append(read_index(saved, "optimizer.safetensors.index.json"))
        self.expect("has the weights of the synchronous run", same_bits(*weights), worst_relative(*weights))
        self.expect("has its moments", same_bits(*moments), worst_relative(*moments))

    def more_pipelines_than_samples(self, policy):
        """In a round: four pipeline replicas, and samples for two."""
        self.batch = 2 * PIPELINE_SAMPLES
        self.steps = 6
        self.run = ElasticRun(self.program, self.name.replace(" ", "-"), 4, *layout_words(1, 2),
                              "--sync.policy", policy, "--sync.round_steps", "1",
                              "--training.steps", "6")
        self.runs.append(self.run)
        self.check()
        self.expect("nobody is lost", not self.run.events("worker.lost"))
        idle = [line["pipeline_samples"].count(0) for line in self.run.steps()]
        self.expect("some have none", idle == [2] * 6, idle)

    def slow_pipeline(self):
        seconds = {}
        for policy in ("allreduce", "sdpipe"):
            self.start(1, 3, 40, *SLEEP, "--device.speeds", "1,1,0.25", policy=policy)
            self.check(learns=False)
            seconds[policy] = sum(line["step_seconds"] for line in self.run.steps()[1:])
            seconds[policy] /= self.run.steps()[-1]["step"] - self.run.steps()[0]["step"]
        self.expect("nobody waits for the slow pipeline replica",
                    seconds["sdpipe"] < 0.8 * seconds["allreduce"], f"{seconds} s a step")
        pipelines = zip(*[line["pipeline_samples"] for line in self.run.steps()])
        done = [sum(pipeline) for pipeline in pipelines]
        self.expect("which does less", done[2] < 0.6 * min(done[:2]), done)

    def goes_its_own_way(self):
        """A slow pipeline replica, which "auto" has to find."""
        run = self.start(1, 3, 90, *SLEEP, "--device.speeds", "1,1,0.25", policy="auto", round=30)
        self.check(learns=False)
        changes = run.events("sync.changed")
        self.expect("the pipeline replicas are let go once", len(changes) == 1, changes)
        lines = run.steps()
        together = [line for line in lines if "pipeline_samples" not in line]
        apart = [line for line in lines if "pipeline_samples" in line]
        self.expect("at first all do every step together", together and apart and
                    together[-1]["step"] < min(30, apart[0]["step"]), lines[:3])
        paces = [sum(line["step_seconds"] for line in part[1:]) /
                 max(1, part[-1]["step"] - part[0]["step"]) for part in (together, apart)]
        self.expect("then nobody waits for the slow one", paces[1] < 0.8 * paces[0],
                    f"{paces} s a step")
        self.expect("nothing is done again", not run.events("run.rolled_back"))

    def start_planned(self, steps, *words):
        """Four unlike workers, of which two have room for the model: the planner shares them out."""
        self.batch = 2 * PIPELINE_SAMPLES
        self.steps = steps
        name = f"{self.name}-{len(self.runs)}".replace(" ", "-")
        layout = layout_words(2, 2)
        layout[1] = "auto"
        self.run = ElasticRun(self.program, name, 4, *layout, "--sync.policy", "sdpipe",
                              "--sync.round_steps", "20", "--training.steps", str(steps), *words)
        self.runs.append(self.run)
        return self.run

    def plans(self):
        """A list for each plan: the workers of each pipeline replica, with how many layers they have."""
        found = []
        for (text,) in self.run.journal("SELECT plan FROM plans ORDER BY generation"):
            replicas = {}
            for line in text.splitlines():
                if not line.startswith("stage "):
                    continue
                begin, end = map(int, line.split("layers=")[1].split(" ")[0].split(".."))
                for number, each in enumerate(line.split("replicas=")[1].split(",")):
                    worker = each.split("@w")[1].split("[")[0]
                    layers = replicas.setdefault(number, {})
                    layers[worker] = layers.get(worker, 0) + end - begin
            found.append(list(replicas.values()))
        return found

    def planned_cuts(self, claims=1):
        self.start_planned(40, "--device.speeds", "1,0.3,0.9,0.6", "--device.memory_limit_mb", "4",
                           *claims_words(claims))
        self.check()
        loss = self.run.steps()[-1]["loss"]
        mean = self.synchronous_loss(2, 2)
        self.expect("learns at least about as much as all together", loss < 1.15 * mean,
                    f"{loss:.3f} and {mean:.3f}")
        plan = self.plans()[0]
        self.expect("nobody is left over, and nobody has all", sum(map(len, plan)) == 4 and
                    all(len(each) > 1 for each in plan), plan)

    def planned_goes_its_own_way(self, *words):
        """Workers of which each stalls now and then: "auto" has to find that nobody should wait."""
        run = self.start_planned(160, *SLEEP, "--device.speeds", "1,0.5,1,0.5", "--sync.policy", "auto",
                                 "--device.scenario", "H4 probability=0.1 sleep=100000",
                                 "--optimizer.name", "sgd", *words)
        self.check(learns=False)
        changes = run.events("sync.changed")
        self.expect("the plan becomes one of pipeline replicas, once", len(changes) == 1, changes)
        lines = run.steps()
        self.expect("at first all do every step together", "pipeline_samples" not in lines[0] and
                    "pipeline_samples" in lines[-1], lines[:1])
        self.expect("nothing is done again", not run.events("run.rolled_back"))

    def planned_straggler(self):
        """One becomes slow: the planner moves layers away from it."""
        run = self.start_planned(160, *SLEEP[:-2], "--device.memory_limit_mb", "4", "--chaos",
                                 "w1:slow=4x@step=20")
        self.check(learns=False)
        self.expect("it is found", [each["worker"] for each in run.events("worker.speed_changed")][:1]
                    == ["1"], run.events("worker.speed_changed"))
        plans = self.plans()
        before, after = (sum(each.get("1", 0) for each in plan) for plan in (plans[0], plans[-1]))
        self.expect("it has fewer layers than before", after < before, plans)

    def planned_cuts_and_a_death(self):
        """Its partner finds another place, or joins the others."""
        run = self.start_planned(120, *SLEEP, "--device.speeds", "1,0.25,1,0.5",
                                 "--optimizer.name", "sgd", "--device.memory_limit_mb", "3")
        self.wait_in_round(20)
        run.signal(2)
        self.check(learns=False)
        self.expect("nothing is done again", not run.events("run.rolled_back"))
        plans = self.plans()
        cuts = [sorted(each.values()) for each in plans[0]]
        self.expect("pipeline replicas have cuts of their own", len(cuts) == 2 and
                    cuts[0] != cuts[1], plans[0])
        told = run.events("worker.spare")
        spare = told[-1]["workers"].split(", ") if told else []
        self.expect("the three that are left have work, or it is said why not",
                    sum(map(len, plans[-1])) + len(spare) == 3, f"{plans} {told}")

    def expect_no_early_quiesce(self, victim):
        """The others went on to the end of their round, and lost nothing."""
        lost = self.run.events("worker.lost")
        self.expect(f"w{victim} is named", [each["worker"] for each in lost] == [str(victim)], lost)
        quiesces = self.run.events("plan.quiesced")
        behind = [line for line in self.run.steps() if lost and line["time"] > lost[0]["time"]]
        self.expect("nobody is quiesced before the round has ended", quiesces and behind and
                    all(quiesce["time"] >= behind[0]["time"] for quiesce in quiesces), quiesces)
        self.expect("nothing is done again", not self.run.events("run.rolled_back"))

    def kill_and_join(self, stages, pipelines, policy):
        run = self.start(stages, pipelines, 120, *PACE, policy=policy, round=40, apart=True)
        self.wait_in_round(40)
        victim = self.rng.randint(1, stages * pipelines)
        run.signal(victim)
        run.wait_for_event("worker.lost")
        run.join()
        self.check()
        self.expect_no_early_quiesce(victim)
        count = len(run.steps()[-1]["pipeline_samples"])
        self.expect("the newcomer makes the pipeline replicas complete", count == pipelines, count)
        codes = sorted(worker.returncode for worker in run.workers)
        self.expect("every other worker ends with code 0",
                    codes == [-signal.SIGKILL] + [0] * stages * pipelines, codes)

    def kill_without_another(self, stages, pipelines, policy):
        self.start(stages, pipelines, 80, *PACE, policy=policy, round=40)
        self.wait_in_round(40)
        victim = self.rng.randint(1, stages * pipelines)
        self.run.signal(victim)
        self.check()
        self.expect_no_early_quiesce(victim)

    def kill_in_the_first_round(self):
        run = self.start(2, 2, 40, *PACE, round=40)
        run.wait_for_event("run.started")
        time.sleep(0.2)
        run.signal(1)
        self.check()
        self.expect_no_early_quiesce(1)

    def kill_all_pipelines(self):
        """One worker of each: the round is done again from the snapshots of its start."""
        run = self.start(2, 2, 80, *PACE, round=40)
        self.wait_in_round(40)
        for worker in (1, 4):  # Of stage 0 and 1.
            run.signal(worker)
        self.check()
        quiesces = run.events("plan.quiesced")
        self.expect("it begins again where it began", quiesces and not run.events("run.rolled_back"),
                    quiesces)

    def coordinator(self, with_worker=False):
        run = self.start(2, 2, 120, *PACE, round=40, apart=True)
        run.address()
        self.wait_in_round(40)
        if with_worker:
            run.signal(2)
        run.coordinator.kill()
        run.coordinator.wait()
        before = run.steps_done()
        run.resume()
        self.check()
        lines = [line["step"] for line in run.steps()]
        self.expect("goes on from the start of the round", 40 in lines and before in lines, lines)
        terms = run.journal("SELECT COUNT(*) FROM terms")[0][0]
        self.expect("its successor has the next term", terms == 2, terms)

    def coordinator_of_one_pipeline(self):
        """Nobody else keeps its snapshots."""
        run = self.start(1, 1, 60, *PACE, round=20, apart=True)
        self.wait_in_round(20)
        run.coordinator.kill()
        run.coordinator.wait()
        run.resume()
        self.check()
        self.expect("nothing is done again", not run.events("run.rolled_back"))

    def worker_and_coordinator(self):
        self.coordinator(with_worker=True)

    def drain(self):
        run = self.start(2, 2, 120, *PACE, round=60, apart=True)
        run.wait_for_event("run.started")
        time.sleep(0.3)
        victim = self.rng.randint(1, 4)
        run.signal(victim, signal.SIGTERM)
        left = run.wait_for_event("worker.left")
        self.check()
        self.expect(f"w{victim} leaves", left and left is not True and
                    left[0]["worker"] == str(victim), left)
        self.expect("nobody is lost and nothing is done again", not run.events("worker.lost") and
                    not run.events("run.rolled_back"))
        self.expect("the round is cut short for it", run.steps()[0]["step"] < 60,
                    run.steps()[0]["step"])
        codes = [worker.returncode for worker in run.workers]
        self.expect("every worker ends with code 0", codes == [0] * 4, codes)

    def interrupt(self):
        run = self.start(1, 3, 5000, "--checkpoint.interval", "2500", round=1000)
        run.wait_for_event("run.started")
        time.sleep(0.5)
        start = time.monotonic()
        run.coordinator.send_signal(signal.SIGINT)
        self.check(code=STOPPED, steps=0)
        took = time.monotonic() - start
        self.expect("ends in time", took < 4, f"{took:.1f} s")
        done = run.steps_done()
        self.expect("the round is cut short", 0 < done < 1000, done)
        run.coordinator = run.spawn("train", "--resume", run.folder(), "--training.steps",
                                    str(done + 30))
        self.check(steps=done + 30)

    def interrupt_with_claims(self, claims):
        """What is in flight takes several iterations' time, and is waited for."""
        slow = ["--device.type", "sleep", "--device.sleep_forward_us", "30000",
                "--device.sleep_backward_us", "60000", "--elastic.watch_speeds", "false"]
        run = self.start(2, 1, 500, *slow, *claims_words(claims), round=8)
        run.wait_for_step(8, PATIENCE_SECONDS)
        time.sleep(1)
        before = run.steps_done()
        run.coordinator.send_signal(signal.SIGINT)
        self.check(code=STOPPED, steps=0, learns=False)
        self.expect("the round in progress is cut short and kept", run.steps_done() > before,
                    f"{before} to {run.steps_done()}")

    def typo(self):
        result, _ = self.program.train("typo", "--sync.policy", "sdpip")
        self.expect("is one line that says what was meant", result.returncode == 2 and
                    "did you mean sdpipe" in result.stderr and
                    result.stderr.count("\n") == 1, result.stderr)


def trials():
    for number, policy in enumerate(POLICIES):
        # All for the first ones, so that time is left for deaths.
        for stages, pipelines in ((2, 3), (1, 4)) if number < 5 else ((2, 3),):
            yield f"{policy} {stages}x{pipelines}", (
                lambda t, p=policy, s=stages, c=pipelines: t.runs_to_the_end(p, s, c))
    for policy, stages, pipelines, claims in (("sdpipe", 4, 1, 3), ("overlapped", 3, 2, 3),
                                              ("ps_async", 2, 2, 2)):
        yield f"{claims} claims {policy} {stages}x{pipelines}", (
            lambda t, p=policy, s=stages, c=pipelines, k=claims: t.several_claims(p, s, c, k))
    for stages in (1, 3):
        yield f"one pipeline replica of {stages}", lambda t, s=stages: t.one_pipeline(s)
    yield "adasum of rounds", lambda t: t.adasum_of_rounds(2, 3)
    yield "by a server", lambda t: t.by_a_server("ps", 2, 2)
    yield "by servers of groups", lambda t: t.by_a_server("grouped_ps", 3, 2, "--sync.groups", "1")
    for policy in ("adpsgd", "ps", "hetpipe"):
        yield f"more pipeline replicas than samples {policy}", (
            lambda t, p=policy: t.more_pipelines_than_samples(p))
    yield "slow pipeline replica", Trial.slow_pipeline
    yield "auto finds the slow pipeline replica", Trial.goes_its_own_way
    yield "planned cuts", Trial.planned_cuts
    yield "planned cuts with several claims", lambda t: t.planned_cuts(claims=3)
    yield "planned cuts and a death", Trial.planned_cuts_and_a_death
    yield "planned straggler", Trial.planned_straggler
    yield "planned goes its own way", Trial.planned_goes_its_own_way
    yield ("planned goes its own way without a flush",
           lambda t: t.planned_goes_its_own_way("--device.memory_limit_mb", "4", *claims_words(2)))
    for policy in ("sdpipe", "adpsgd", "overlapped", "prague", "ps_bounded"):
        yield f"kill and join {policy}", lambda t, p=policy: t.kill_and_join(2, 2, p)
    for policy in ("partial_reduce", "adpsgd_paired", "ps"):
        yield f"kill {policy}", lambda t, p=policy: t.kill_without_another(1, 4, p)
    yield "kill in the first round", Trial.kill_in_the_first_round
    yield "kill all pipeline replicas", Trial.kill_all_pipelines
    yield "kill with several claims", lambda t: t.kill_with_claims(3)
    yield "several claims where there can be one", Trial.refusals
    yield "coordinator", Trial.coordinator
    yield "coordinator of one pipeline replica", Trial.coordinator_of_one_pipeline
    yield "worker and coordinator", Trial.worker_and_coordinator
    yield "drain", Trial.drain
    yield "interrupt", Trial.interrupt
    yield "interrupt with several claims", lambda t: t.interrupt_with_claims(4)
    yield "typo", Trial.typo


def carry_out(program, name, fault_action, seed):
    trial = Trial(program, name, seed)
    start = time.monotonic()
    try:
        fault_action(trial)
    except Exception:  # Any: the other trials go on.
        trial.expect("can be judged", False, traceback.format_exc(limit=3))
    for run in trial.runs:
        run.end()
    with program.lock:
        broken = [claim for claim in trial.claims if not claim[1]]
        for claim in broken:
            program.expect(*claim)
        if not broken:
            took = time.monotonic() - start
            program.expect(name, True, f"{len(trial.claims)} claims, {took:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    program = Program()
    program.lock = threading.Lock()
    program.losses = {}  # Of synchronous runs, by stages and pipeline replicas.
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, fault_action in trials():
            if options.only in name:
                pool.submit(carry_out, program, name, fault_action, options.seed)
    program.finish()


main()
