#!/usr/bin/env python3
"""A planner that takes three leases for each thought: no worker is lost while it thinks, commits go
out, and a worker that is killed meanwhile is replaced by a quick rule, without waiting for it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import LAYOUTS, LEASE_SECONDS, ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

STEPS = 60
TOLERANCE = 1e-4  # Sums over rows are cut differently by unlike plans.
SLOW = ["--device.speed", "0.1"]  # Some 60 ms a step: what takes seconds still happens in training.
THINKING = int(3 * LEASE_SECONDS)
# From the loss to the next plan in force: no planner, so what any recovery takes.
RECOVERY_SECONDS = LEASE_SECONDS + 2


def main():
    program = Program()
    reference = read_model(newest(program.run_reference("reference", "--training.steps",
                                                        str(STEPS)) + "/final"))
    workers, words = LAYOUTS["auto"]
    run = ElasticRun(program, "slow-planner", workers, *words, *SLOW, "--training.steps",
                     str(STEPS), fail_point=f"coordinator:while-planning:{THINKING}s")
    try:
        run.wait_for_step(3, seconds=30 + 3 * THINKING)
        made = run.events("plan.made")
        program.expect("the first plan took the planner three leases", len(made) == 1 and
                       float(made[0]["planning_us"]) >= THINKING * 1e6, made)
        program.expect("nobody was lost meanwhile", not run.events("worker.lost"),
                       run.events("worker.lost"))
        # The planner now thinks about what the plan expects of its workers.
        run.signal(2)
        program.expect("the loss is seen", run.wait_for_event("worker.lost"))
        back = wait_until(lambda: run.events("run.continued") or run.has_ended(), RECOVERY_SECONDS)
        program.expect(f"training goes on within {RECOVERY_SECONDS:.0f} s", back and
                       not run.has_ended(), run.errors())
        made = run.events("plan.made")
        program.expect("the plan in between is that of a quick rule", len(made) >= 2 and
                       float(made[1]["planning_us"]) < 1e6, made[1:])
        program.expect("the run ends well", run.finish(seconds=90 + 10 * THINKING) == 0,
                       run.errors())
        lost = run.events("worker.lost")
        program.expect("nobody else was lost", len(lost) == 1, lost)
        complaints = run.complaints_about_journal(STEPS)
        program.expect("the journal has each step once", not complaints, complaints)
        worst, tensor = worst_relative(read_model(newest(run.folder())), reference)
        program.expect("the weights are those of one process", worst <= TOLERANCE,
                       f"{worst:.1e} {tensor}")
    finally:
        run.end()
    program.finish()


main()
