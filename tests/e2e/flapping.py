#!/usr/bin/env python3
"""New processes that join a run in training, one after the other, and die after a moment: the first
ones cost a change of plan each, and the later ones none. What is compared are counts."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

LOOPERS = 10
LIFE_SECONDS = 0.9  # Longer than the coordinator waits for others that may come with them.
# Each takes part, and is lost: two changes of plan. One early loss is free; after the second one
# newcomers are held back for longer than they live. One more, if the machine is slow.
PLANS_MAX = 1 + 2 * 3
SLOW = ["--device.speed", "0.1"]  # Some 60 ms a step.


def joined(run):
    return {int(each["pid"]) for each in run.events("worker.joined")}


def main():
    program = Program()
    # No layout is given: there are as many stages as there are workers for.
    run = ElasticRun(program, "flapping", 2, *SLOW, "--training.steps", "100000", apart=True)
    try:
        run.wait_for_step(3)
        loopers = []
        for _ in range(LOOPERS):
            looper = run.spawn("worker", "--join", run.address())
            loopers.append(looper.pid)
            assert wait_until(lambda: looper.pid in joined(run), 20), run.errors()
            time.sleep(LIFE_SECONDS)
            looper.kill()
            looper.wait()
        lost = wait_until(lambda: len(run.events("worker.lost")) >= LOOPERS, 20)
        plans = run.events("plan.made")
        program.expect("all of them were taken in and lost", lost and joined(run) >= set(loopers))
        program.expect("the first of them was given a part", len(plans) >= 3, len(plans))
        program.expect("the later ones change no plan", len(plans) <= PLANS_MAX,
                       f"{len(plans)} plans for {LOOPERS} processes")
        back = run.events("run.rolled_back")
        program.expect("only they take steps back, with the stage that they had",
                       len(back) <= PLANS_MAX // 2, [each["text"] for each in back])
        held = run.events("worker.held_back")
        program.expect("the log says which host is flapping, and for how long it is held back",
                       held and "is flapping" in held[-1]["text"] and
                       "may take part in" in held[-1]["text"] and
                       int(held[-1]["seconds"]) >= 8, held and held[-1]["text"])
        step = run.steps_done()
        run.wait_for_step(step + 5)
        program.expect("the others train on", run.steps_done() >= step + 5)
    finally:
        run.end()
    program.finish()


main()
