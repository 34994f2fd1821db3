#!/usr/bin/env python3
"""Many changes of members leave no thread, socket, file or memory behind.

  churn.py SKEIN [CHANGES]      20 changes, or 200 with SKEIN_TEST_LONG=1
"""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import GLOBAL_BATCH, LEASE_SECONDS, ElasticRun, wait_until  # noqa: E402
from running import LONG, Program  # noqa: E402

# Changes before what is normal is known: pools and caches fill. An even number: somebody comes, then
# somebody goes, and what is open depends on how many there are.
WARM_UP = 8
# A change adds a line to logs and journal, whose caches grow a little.
MEMORY_GROWTH_KB = 6000
# Connections for layers and snapshots are made when they are first used, so their number wavers; one
# that is left behind by each change would be twice as many after the shortest run.
FILES_MARGIN = 6
STAYING = "1"  # The worker that is there all the time.


def used(pid):
    """Threads, open files and resident kilobytes of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return (int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd")),
            int(status["VmRSS"].split()[0]))


def settle(pid, seconds=10):
    """What a process uses when nothing is on its way: the smallest of a while."""
    samples = []
    wait_until(lambda: samples.append(used(pid)) or len(samples) > 20, seconds, every=0.1)
    return tuple(min(pipeline) for pipeline in zip(*samples))


def main():
    program = Program()
    numbers = [int(word) for word in sys.argv[2:] if word.isdigit()]
    changes = 2 * ((numbers[0] if numbers else 200 if LONG else 20) // 2)
    random.seed(3)
    run = ElasticRun(program, "churn", 2, "--training.steps", "1000000", "--device.type", "sleep",
                     "--device.sleep_forward_us", "1000", "--device.sleep_backward_us", "2000",
                     "--checkpoint.enable=false", "--profiling.enable_profiling=false",
                     "--elastic.snapshot_interval", "3", apart=True)
    try:
        run.wait_for_step(3)
        watched = {"coordinator": run.coordinator.pid, "w" + STAYING: run.pid(STAYING)}
        by_pid = {worker.pid: worker for worker in run.workers}
        others = [worker for pid, worker in by_pid.items() if pid != run.pid(STAYING)]
        normal, worst = {}, {}
        for change in range(changes):
            plans = len(run.events("run.continued"))
            if len(others) < 2:
                others.append(run.join())
            else:
                leaver = others.pop(random.randrange(len(others)))
                leaver.send_signal(random.choice([signal.SIGKILL, signal.SIGTERM]))
                wait_until(lambda: leaver.poll() is not None, 20)
            went_on = wait_until(lambda: len(run.events("run.continued")) > plans, 20)
            if not went_on or run.has_ended():
                program.expect(f"change {change} is survived", False, run.errors()[-200:])
                break
            if change + 1 == WARM_UP:
                normal = {name: settle(pid) for name, pid in watched.items()}
        worst = {name: settle(pid) for name, pid in watched.items()}
        for name, before in normal.items():
            now = worst[name]
            program.expect(f"{name} has no more threads after {changes} changes",
                           now[0] <= before[0] + 1, f"{before[0]} then {now[0]}")
            program.expect(f"{name} has no more open files", now[1] <= before[1] + FILES_MARGIN,
                           f"{before[1]} then {now[1]}")
            if LEASE_SECONDS > 2:
                print(f"skip  {name}'s memory: a sanitizer keeps what is freed")
                continue
            program.expect(f"{name} has no more memory", now[2] <= before[2] + MEMORY_GROWTH_KB,
                           f"{before[2]} kB then {now[2]} kB")
        done = run.steps_done()
        program.expect("steps went on", done > changes, f"{done} steps")
        rows = run.journal("SELECT step, first_sample FROM commits ORDER BY step")
        program.expect("the journal has each step once, with the samples that follow",
                       rows == [(step, step * GLOBAL_BATCH) for step in range(len(rows))] and
                       len(rows) >= done, f"{len(rows)} commits")
    finally:
        run.end()
    program.finish()


main()
