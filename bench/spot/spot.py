#!/usr/bin/env python3
"""A recorded spot market, replayed: a real run whose workers come and go as recorded, beside the
simulation of the same, and beside stopping and restarting from checkpoints, simulated and real.

    bench/spot/spot.py build/release/skein [--seconds 600] [--notice 120] [--trace FILE]

The whole recording (bench/spot/README.md) in ten minutes; --seconds cuts it shorter at the same pace.
Eight devices that only sleep, every third recorded machine, plans by the planner. Machines that go are
killed (kill -9); with --notice they hear SIGTERM so many recorded seconds before. Targets, fixed
before: simulated and measured goodput within 5%, and 90% of the ideal by capacity.
"""
import argparse
import calendar
import glob
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "tests", "support")]
from elastic_runs import read_lines, wait_until  # noqa: E402
from realtime import parse_args  # noqa: E402

DEVICES = 8
RECORDED_SECONDS = 38_280  # From the first event to the last one.
WHOLE_SECONDS = 600  # In which the whole recording is played.
BATCH = 1024
CHECKPOINT_STEPS = 10  # As the job of bench/recovery.py under torchrun.
ERROR_TARGET, IDEAL_TARGET = 0.05, 0.90

JOB = f"""
[job]
name = "spot"
[model]
n_layer = 28
n_head = 4
n_embd = 32
[data]
dataset = "text"
path = "/usr/share/common-licenses/GPL-3"
[training]
seq_len = 32
micro_batch_size = 64
global_batch_size = {BATCH}
steps = 1000000
[device]
type = "sleep"
sleep_forward_us = 2500
sleep_backward_us = 5000
[validation]
batches = 0
[checkpoint]
interval = {CHECKPOINT_STEPS}
keep_latest_k = 2
[profiling]
enable_profiling = false
[parallelism]
pipeline_parallel_degree = "auto"
"""
CLUSTER = f"""
[[host]]
name = "this"
devices = {DEVICES}
inside_gbps = 10
"""


def seconds_of(line):
    """When a line of JSON was written, since the Unix epoch."""
    whole, fraction = line["time"].rstrip("Z").split(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + fraction)


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.skein = os.path.abspath(options.skein)
        self.job = self.write("job.toml", JOB)
        self.cluster = self.write("cluster.toml", CLUSTER)
        self.profile, self.costs = None, {}

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_of(self, dump):
        runs = glob.glob(os.path.join(self.folder, dump, "*", "config.resolved.toml"))
        return os.path.dirname(max(runs, key=os.path.getmtime)) if runs else None

    def calibrate(self):
        """A run of two workers and some seconds before anything else: a newcomer, a loss, another
        newcomer. It says what a device measures of its layers, and what changes take here."""
        job = [self.skein, "train", self.job, "--job.dump_folder",
               os.path.join(self.folder, "before"), "--workers", "2", "--quiet", "--training.steps",
               "8", "--chaos", "another:join@1s;w1:kill@5s;another:join@6s;another:join@8s"]
        subprocess.run(job, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        folder = self.run_of("before")
        self.profile = os.path.join(folder, "profile.json")
        lines = read_lines(os.path.join(folder, "events.jsonl"))
        start = seconds_of(next(each for each in lines if each["event"] == "run.started"))
        joined = {each["worker"]: seconds_of(each) for each in lines
                  if each["event"] == "worker.joined"}
        measured = [seconds_of(each) - joined[each["worker"]] for each in lines
                    if each["event"] == "worker.measured"]
        made = [seconds_of(each) for each in lines if each["event"] == "plan.made"]
        changed = [seconds_of(each) - max(when for when in made if when <= seconds_of(each))
                   for each in lines if each["event"] == "run.continued"]
        self.costs = {"join": statistics.median(
            joined[str(worker)] - start - at for worker, at in ((3, 1), (4, 6), (5, 8))
            if str(worker) in joined),
                      "measure": statistics.median(measured), "change": statistics.median(changed)}

    def simulate(self, *words):
        scale = RECORDED_SECONDS / WHOLE_SECONDS
        done = subprocess.run(
            [self.skein, "simulate", self.job, self.cluster, "--profile", self.profile, "--churn",
             self.options.trace, "--churn-scale", str(scale), "--churn-length",
             str(self.options.seconds * scale), "--churn-notice", str(self.options.notice),
             *sum([[f"--churn-{name}", f"{seconds:.3f}"] for name, seconds in self.costs.items()],
                  []), "--log-format", "json", *words],
            check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def run_skein(self, simulated):
        """One run that lives through all changes. Samples per second, and what else was seen."""
        dump = os.path.join(self.folder, "elastic")
        with open(os.path.join(self.folder, "elastic.err"), "w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [self.skein, "train", self.job, "--job.dump_folder", dump, "--quiet", "--workers",
                 str(simulated["first_workers"]), "--chaos", simulated["chaos"]],
                stdout=subprocess.DEVNULL, stderr=errors)
        try:
            def events(name):
                folder = self.run_of("elastic")
                lines = read_lines(os.path.join(folder, "events.jsonl")) if folder else []
                return [each for each in lines if each["event"] == name]
            started = wait_until(lambda: events("run.started"), 60, every=0.05)
            assert started, "the run has not started"
            begin = seconds_of(started[0])
            end = begin + self.options.seconds
            while time.time() < end + 0.5 and process.poll() is None:
                time.sleep(0.2)
            steps = [each for each in read_lines(os.path.join(self.run_of("elastic"),
                                                              "metrics.jsonl"))
                     if each["kind"] == "step" and seconds_of(each) <= end]
            back = [each for each in events("run.rolled_back") if seconds_of(each) <= end]
            lost = [each for each in events("worker.lost") if seconds_of(each) <= end]
            continued = [seconds_of(each) for each in events("run.continued")]
            stops = [min([when for when in continued if when >= seconds_of(each)], default=end) -
                     seconds_of(each)
                     for each in events("plan.quiesced") if seconds_of(each) <= end]
            joined = {each["worker"]: seconds_of(each) for each in events("worker.joined")}
            measured = [seconds_of(each) - joined[each["worker"]]
                        for each in events("worker.measured") if each["worker"] in joined]
            goodput = steps[-1]["goodput"]
            assert process.poll() is None, (
                "the run has ended: " + open(os.path.join(self.folder, "elastic.err"),
                                             encoding="utf-8").read()[-2000:])
            return {"steps": steps[-1]["step"], "plans": sum(when <= end for when in continued),
                    "rolled_back": sum(int(each["from"]) - int(each["to"]) for each in back),
                    "lost": len(lost), "stops": stops, "measuring": measured, "goodput": goodput}
        finally:
            process.kill()
            process.wait()

    def memberships(self, simulated):
        """(seconds, what happens, number of members from then on who have heard of no end)."""
        changes = []
        members = {n + 1 for n in range(simulated["first_workers"])}
        newest = len(members)
        for entry in filter(None, simulated["chaos"].split(";")):
            found = re.fullmatch(r"(another|w(\d+)):(join|term|kill)@([0-9.e+-]+)s", entry)
            what, at = found.group(3), float(found.group(4))
            if what == "join":
                newest += 1
                members.add(newest)
            elif int(found.group(2)) in members:
                members.remove(int(found.group(2)))
            else:
                continue  # It had heard before.
            changes.append((at, what, len(members)))
        return changes

    def run_restarts(self, simulated):
        """The same changes for a run that is killed at each and resumed from its last checkpoint
        with as many workers as there are then; at a notice it saves first (SIGTERM)."""
        dump = os.path.join(self.folder, "restarted")
        begin, life, restarts, took = None, None, 0, []

        def folder_steps():
            folder = self.run_of("restarted")
            lines = read_lines(os.path.join(folder, "metrics.jsonl")) if folder else []
            return [each for each in lines if each["kind"] == "step"]

        def start(workers):
            folder = self.run_of("restarted")
            words = ["--resume", folder] if folder and folder_steps() else [
                self.job, "--job.dump_folder", dump]
            with open(os.path.join(self.folder, "restarted.err"), "a", encoding="utf-8") as errors:
                return subprocess.Popen([self.skein, "train", *words, "--workers", str(workers),
                                         "--quiet"], stdout=subprocess.DEVNULL, stderr=errors,
                                        start_new_session=True)

        def end_life(saves):
            if life is None:
                return
            if saves and life.poll() is None:
                os.kill(life.pid, signal.SIGTERM)
                try:
                    life.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    pass
            try:
                os.killpg(life.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            life.wait()

        def sleep_until(when, asked, count):
            """Waits, and sees when the first step after a restart is committed."""
            while time.time() < when:
                if asked is not None:
                    steps = folder_steps()
                    fresh = [each for each in steps[count:] if seconds_of(each) > asked]
                    if fresh:
                        took.append(seconds_of(fresh[0]) - asked - fresh[0]["step_seconds"])
                        asked = None
                time.sleep(min(0.1, max(0.0, when - time.time())))

        try:
            workers = simulated["first_workers"]
            life = start(workers)
            first = wait_until(folder_steps, 60, every=0.05)
            begin = seconds_of(first[0]) - first[0]["step_seconds"]
            asked, count = None, 0
            changes = self.memberships(simulated)
            while changes:
                at = changes[0][0]
                sleep_until(begin + at, asked, count)
                now = [each for each in changes if begin + each[0] <= time.time() + 0.01]
                changes = changes[len(now):]
                end_life(saves=all(what == "term" for _, what, _ in now))
                life, workers, asked, count = None, now[-1][2], time.time(), len(folder_steps())
                restarts += 1
                if workers:
                    life = start(workers)
                else:
                    asked = None
            sleep_until(begin + self.options.seconds, asked, count)
            steps = [each for each in folder_steps()
                     if seconds_of(each) <= begin + self.options.seconds]
            redone = sum(max(0, before["step"] - after["step"] + 1)
                         for before, after in zip(steps, steps[1:]))
            return {"steps": steps[-1]["step"], "restarts": restarts, "rolled_back": redone,
                    "took": took}
        finally:
            end_life(saves=False)


def rate(samples, options):
    return samples / options.seconds


def line(name, samples, ideal, options, rest=""):
    print(f"{name:<42} {rate(samples, options):9.1f} {samples / ideal:9.1%} {rest}", flush=True)


def way(simulated, name):
    return next(each for each in simulated["ways"] if each["way"] == name)


def rest_of(each):
    return f"{each['plans']:9d} {each['steps_redone']:13d} {each['stopped_s']:9.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--seconds", type=float, default=WHOLE_SECONDS)
    parser.add_argument("--notice", type=float, default=0)
    parser.add_argument("--trace", default=os.path.join(HERE, "g4dn-trace.csv"))
    parser.add_argument("--only-simulation", action="store_true")
    parser.add_argument("--no-restarts", action="store_true", help="no real stop and restart")
    options = parse_args(parser)
    with tempfile.TemporaryDirectory(prefix="skein-spot-") as folder:
        bench = Bench(options, folder)
        bench.calibrate()
        simulated = bench.simulate()
        ideal = simulated["ideal_samples"]
        print(f"every {simulated['every']}. machine of {os.path.basename(options.trace)}, "
              f"{simulated['scale']:.1f} times faster, {options.seconds:g} s: begins with "
              f"{simulated['first_workers']} of {DEVICES}, {simulated['joins']} join, "
              f"{simulated['losses']} are lost, {simulated['members_mean']:.2f} members in the mean"
              f"; notice {simulated['notice_s']:.2f} s")
        print("measured before, and given to the simulation: " + ", ".join(
            f"{name} {seconds:.2f} s" for name, seconds in bench.costs.items()) +
              f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'':<42} {'samples/s':>9} {'of ideal':>9} {'re-plans':>9} {'steps redone':>13} "
              f"{'stopped':>11}")
        line("ideal by capacity", ideal, ideal, options)
        line("best plans, free changes, simulated", simulated["free_samples"], ideal, options)
        for each in simulated["ways"]:
            line(each["way"] + ", simulated", each["samples"], ideal, options, rest_of(each))
        if options.only_simulation:
            return
        missed = []
        real = bench.run_skein(simulated)
        samples = real["steps"] * BATCH
        goodput = real["goodput"]
        line("skein, measured", samples, ideal, options,
             f"{real['plans']:9d} {real['rolled_back']:13d} "
             f"{sum(real['stops']):9.1f} s")
        error = way(simulated, "skein")["samples"] / samples - 1
        print(f"  simulated against measured: {error:+.1%}; {real['lost']} losses; a change of plan "
              f"stops training for {statistics.median(real['stops'] or [0]):.2f} s in the median; a "
              f"newcomer has measured {statistics.median(real['measuring'] or [0]):.2f} s after it "
              f"joined; work cut off {goodput['redone']:.1f} s. Steps redone: those that were "
              "committed and taken back.")
        if abs(error) > ERROR_TARGET:
            missed.append("simulated and measured within 5%")
        if samples < IDEAL_TARGET * ideal:
            missed.append("90% of the ideal")
        if not options.no_restarts:
            real = bench.run_restarts(simulated)
            samples = real["steps"] * BATCH
            line("stop and restart (skein), measured", samples, ideal, options,
                 f"{real['restarts']:9d} {real['rolled_back']:13d}")
            median = statistics.median(real["took"] or [0])
            again = bench.simulate("--churn-restart", f"{median:.3f}")
            line(f"stop and restart in {median:.2f} s, simulated",
                 way(again, "stop and restart")["samples"], ideal, options,
                 rest_of(way(again, "stop and restart")))
        print(f"load after {os.getloadavg()[0]:.1f}")
        print(f"targets missed: {', '.join(missed)}" if missed else "all targets are met")


main()
