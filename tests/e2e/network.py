#!/usr/bin/env python3
"""Faults of the network between machines (network namespaces): partitions that heal, packets that
are dropped while sockets stay open, a slow link. Training goes on and ends with the weights of a run
that nobody disturbed."""
import concurrent.futures
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import LAYOUTS, LEASE_SECONDS, ElasticRun, wait_until  # noqa: E402
from namespaces import Network  # noqa: E402
from running import Program  # noqa: E402

WORKERS = 3
JOBS = 2  # Trials at a time, each in a network of its own.
SLOW = ["--device.speed", "0.1"]  # Some 60 ms a step.
TOLERANCE = 1e-4


class Trial:
    def __init__(self, program, network, name, steps, words, workers=WORKERS):
        self.program = program
        self.network = network
        self.name = name
        self.steps = steps
        self.words = words
        self.run = ElasticRun(program, name.replace(" ", "-"), workers, *SLOW, "--training.steps",
                              str(steps), *words, network=network)

    def expect(self, claim, holds, detail=""):
        self.program.expect(f"{self.name}: {claim}", holds, detail)

    def machine(self, worker):
        """The machine that a worker is on: the next one for each that is started."""
        pids = [process.pid for process in self.run.workers]
        return 1 + pids.index(self.run.pid(worker))

    def check(self):
        code = self.run.finish()
        self.expect("ends with code 0", code == 0, f"{code}: {self.run.errors()[-300:]}")
        orphans = self.run.orphans()
        self.expect("leaves no orphan", not orphans, orphans)
        complaints = self.run.complaints_about_journal(self.steps)
        self.expect("every step is committed once", not complaints, complaints)
        if code == 0:
            reference = self.program.run_reference(f"reference-{self.name}", "--training.steps",
                                                   str(self.steps), *self.words)
            worst, tensor = worst_relative(read_model(newest(self.run.folder())),
                                           read_model(newest(reference + "/final")))
            self.expect("has the weights of one process", worst <= TOLERANCE,
                        f"{worst:.1e} {tensor}")

    def goes_on_without(self, worker, start):
        """From `start` on nothing has come from the worker."""
        self.run.wait_for_event("worker.lost")
        took = time.monotonic() - start
        lost = self.run.events("worker.lost")
        self.expect("the worker is lost soon after its lease",
                    took < LEASE_SECONDS + 1 and lost[0]["worker"] == str(worker),
                    f"{took:.2f} s, {[each['text'] for each in lost]}")
        step = self.run.steps_done()
        self.run.wait_for_step(step + 2)
        took = time.monotonic() - start
        self.expect("the others go on within a second of it", took < LEASE_SECONDS + 2,
                    f"{took:.2f} s")

    def partition(self):
        """A worker is cut off for longer than its lease, then the network heals."""
        self.run.wait_for_step(5)
        machine = self.machine(2)
        start = time.monotonic()
        self.network.unplug(machine)
        self.goes_on_without(2, start)
        self.network.plug_in(machine)
        back = wait_until(lambda: [each for each in self.run.events("worker.joined")
                                   if "is back" in each["text"]], 20)
        self.expect("it comes back when the network heals", back)
        self.check()

    def silent_drop(self):
        """A worker hears everybody, and nothing that it sends arrives: its sockets stay open."""
        self.run.wait_for_step(5)
        machine = self.machine(3)
        others = [each for each in range(WORKERS + 1) if each != machine]
        start = time.monotonic()
        for other in others:
            self.network.cut(machine, other)
        self.goes_on_without(3, start)
        for other in others:
            self.network.mend(machine, other)
        self.check()

    def cut_between_two(self):
        """Two workers lose each other for a while, and both see the coordinator."""
        self.run.wait_for_step(5)
        one, other = self.machine(1), self.machine(2)
        self.network.cut(one, other)
        self.network.cut(other, one)
        time.sleep(2 * LEASE_SECONDS)
        self.network.mend(one, other)
        self.network.mend(other, one)
        self.check()

    def swallow(self, one, other, directions):
        """From now on packets between two workers are lost, for good; both see the coordinator."""
        self.run.wait_for_step(5)
        machines = [self.machine(one), self.machine(other)]
        start = time.monotonic()
        for begin, end in (machines, machines[::-1])[:directions]:
            self.network.cut(begin, end)
        routed = self.run.wait_for_event("plan.routed_around", 60)
        noticed = self.run.steps_done()
        self.run.wait_for_step(noticed + 5)
        took = time.monotonic() - start
        # One direction is noticed by one end alone, at times.
        late = 2 if directions == 2 else 6
        self.expect(f"they train on within the lease and {late} seconds", took < LEASE_SECONDS + late,
                    f"{took:.2f} s")
        told = [each["text"] for each in self.run.events("link.unreachable")]
        self.expect("an end says whom it does not reach",
                    any(f"w{one} " in text and f"w{other} " in text for text in told), told)
        self.expect("the next plan keeps them apart",
                    f"w{one} and w{other} do not reach one another" in routed[0]["text"],
                    routed[0]["text"])
        self.check()
        self.expect("nobody is lost", not self.run.events("worker.lost"),
                    [each["text"] for each in self.run.events("worker.lost")])
        self.expect("no step is taken back", not self.run.events("run.rolled_back"))
        self.expect("two changes of plan at most", len(self.run.events("plan.made")) <= 3)

    def blackhole(self):
        """Two neighbours of a pipeline. Its embedding is tied, so three stages are all neighbours, and
        one worker has no part: the one without which the others can have all state."""
        self.swallow(1, 2, directions=2)

    def half_blackhole(self):
        """What one replica sends to another one is lost: one of them has no part any more."""
        self.swallow(2, 3, directions=1)

    def slow_link(self):
        """The last worker has 10 Mbit/s from the start, which the planner measures; then another one is
        killed."""
        self.run.wait_for_step(5)
        self.run.signal(1)
        self.check()
        self.expect("nobody else is lost", len(self.run.events("worker.lost")) == 1,
                    [each["text"] for each in self.run.events("worker.lost")])


    def slow_move(self):
        """A stage moves to a newcomer at 10 Mbit/s, which takes longer than the lease."""
        self.run.wait_for_step(2)
        self.run.join()
        self.run.signal(1, signal.SIGTERM)
        self.check()
        quiesces = [each["reason"] for each in self.run.events("plan.quiesced")]
        self.expect("in one change of plan", quiesces == ["a worker leaves"], quiesces)
        self.expect("nobody is lost", not self.run.events("worker.lost"))


def carry_out(program, name, fault_action, steps, words, workers, rate):
    network = Network(WORKERS + 1)
    try:
        if rate:
            network.shape(WORKERS, rate)
        trial = Trial(program, network, name, steps, words, workers)
        try:
            fault_action(trial)
        finally:
            trial.run.end()
    finally:
        network.remove()


def main():
    program = Program()
    if os.geteuid() != 0 or not Network.is_possible():
        print("skip  only root can make networks")
        program.temporary.cleanup()
        sys.exit(77)
    three, shared, auto = (LAYOUTS[layout][1] for layout in ("3x1", "1x3", "auto"))
    large = ["--parallelism.pipeline_parallel_degree", "2", "--model.n_embd", "128",
             "--elastic.snapshot_interval", "0"]
    trials = (("partition", Trial.partition, 60, three, WORKERS, None),
              ("silent drop", Trial.silent_drop, 60, shared, WORKERS, None),
              ("cut between two", Trial.cut_between_two, 60, three, WORKERS, None),
              ("blackhole", Trial.blackhole, 120, three, WORKERS, None),
              ("half a blackhole", Trial.half_blackhole, 250, shared, WORKERS, None),
              ("slow link", Trial.slow_link, 16, auto, WORKERS, "10mbit"),
              ("slow move", Trial.slow_move, 10, large, 2, "10mbit"))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        done = [pool.submit(carry_out, program, *trial) for trial in trials]
    for each in done:
        each.result()
    program.finish()


main()
