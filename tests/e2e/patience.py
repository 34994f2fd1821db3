#!/usr/bin/env python3
"""Nothing that lives is thrown away: a coordinator that was restarted, paused, asked to stop or out of
disk space goes on from the newest state that some worker holds."""
import concurrent.futures
import glob
import os
import pty
import resource
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from between import Between  # noqa: E402
from checkpoints import newest  # noqa: E402
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

SLOWNESS = int(os.environ.get("SKEIN_TEST_SLOWNESS", "1"))
STOPPED, KILLED = 75, 130
SLOW = ["--device.speed", "0.1"]  # Some 60 ms a step.
NO_OTHER_STATE = ["--elastic.snapshot_interval", "0", "--checkpoint.no-enable"]
TWO_STAGES = ["--parallelism.pipeline_parallel_degree", "2"]
THREE_STAGES = ["--parallelism.pipeline_parallel_degree", "3"]


def lease(seconds):
    return ["--elastic.heartbeat_timeout_seconds", str(seconds * SLOWNESS)]


class Claims:
    def __init__(self, program, name):
        self.program = program
        self.name = name

    def __call__(self, claim, holds, detail=""):
        self.program.expect(f"{self.name}: {claim}", bool(holds), detail)


def check_whole(expect, run, steps):
    code = run.finish()
    expect("ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
    back = run.events("run.rolled_back")
    expect("no step is taken back", not back, [each["text"] for each in back])
    complaints = run.complaints_about_journal(steps)
    expect("every step is committed once", not complaints, complaints)
    expect("leaves no orphan", not run.orphans())


def restart_with_a_stopped_worker(program, expect):
    """The only holder of a stage is stopped while the coordinator is replaced, and comes back within
    its lease, later than all who can come at once."""
    run = ElasticRun(program, "restart", 2, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(6),
                     "--training.steps", "60", apart=True)
    try:
        run.wait_for_step(15)
        run.signal(2, signal.SIGSTOP)
        run.coordinator.kill()
        run.coordinator.wait()
        run.resume()
        waiting = run.wait_for_event("run.waiting", 15 * SLOWNESS)
        run.signal(2, signal.SIGCONT)
        expect("says for whom it waits", waiting and waiting is not True and
               waiting[0]["workers"] == "w2", waiting)
        check_whole(expect, run, 60)
    finally:
        run.end()


def stop_of_a_restarted_one(program, expect):
    """The coordinator is told to stop while it waits for the only holder of a stage: that one comes
    back, and all is saved."""
    run = ElasticRun(program, "stop-restarted", 2, *TWO_STAGES, *SLOW, "--elastic.snapshot_interval",
                     "0", *lease(6), "--training.steps", "1000", apart=True)
    try:
        run.wait_for_step(15)
        run.signal(2, signal.SIGSTOP)
        run.coordinator.kill()
        run.coordinator.wait()
        run.resume()
        run.wait_for_event("run.waiting", 20 * SLOWNESS)
        run.coordinator.send_signal(signal.SIGTERM)
        time.sleep(1)
        expect("it still waits", run.coordinator.poll() is None, run.errors()[-200:])
        run.signal(2, signal.SIGCONT)
        check_saved(expect, run, run.finish())
    finally:
        run.end()


def held_terminal(program, expect):
    """The worker's terminal is held (Ctrl-S), and something is to be printed on it."""
    run = ElasticRun(program, "held", 1, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(6),
                     "--training.steps", "60", apart=True, waits_for=2)
    user, terminal = pty.openpty()
    try:
        os.write(user, b"\x13")
        run.workers.append(subprocess.Popen(
            [program.skein, "worker", "--join", run.address()], cwd=program.folder,
            stdout=terminal, stderr=terminal))
        run.wait_for_step(15)
        run.coordinator.kill()
        run.coordinator.wait()
        time.sleep(3 * SLOWNESS)  # It says that it waits for the coordinator.
        run.resume()
        check_whole(expect, run, 60)
        expect("both end well", [each.wait(10) for each in run.workers] == [0, 0])
    finally:
        run.end()
        os.close(user)
        os.close(terminal)


def stopped_coordinator(program, expect, pause_seconds):
    """The coordinator is stopped for longer than a lease, and a worker for a part of that."""
    run = ElasticRun(program, f"stall-{pause_seconds}", 3, *THREE_STAGES, *SLOW, *NO_OTHER_STATE,
                     *lease(2), "--training.steps", "50", apart=True)
    try:
        run.wait_for_step(15)
        end = time.monotonic() + pause_seconds * SLOWNESS
        run.coordinator.send_signal(signal.SIGSTOP)
        time.sleep((pause_seconds - 0.8) * SLOWNESS)
        run.signal(2, signal.SIGSTOP)  # Until after the coordinator goes on.
        time.sleep(max(0.0, end - time.monotonic()))
        run.coordinator.send_signal(signal.SIGCONT)
        time.sleep(0.7 * SLOWNESS)
        run.signal(2, signal.SIGCONT)
        check_whole(expect, run, 50)
        expect("says that it was paused itself", run.events("coordinator.paused"))
        lost = [each["text"] for each in run.events("worker.lost")]
        expect("nobody is lost", not lost, lost)
        expect("nobody is held back", not run.events("worker.held_back"))
    finally:
        run.end()


def reset_link(program, expect, name, *words, waits_seconds=0):
    """A connection between a worker and the coordinator breaks while both live: what the worker holds
    is not taken back, though it is the only one who has it."""
    run = ElasticRun(program, name, 0, *TWO_STAGES, *SLOW, *lease(6), *words,
                     "--training.steps", "60", apart=True, waits_for=2)
    try:
        betweens = [Between(run.address()) for _ in range(2)]
        run.workers = [run.spawn("worker", "--join", each.address) for each in betweens]
        run.wait_for_step(15)
        if waits_seconds:  # Nobody has a coordinator for a while.
            for each in betweens:
                each.take_over()
            time.sleep(waits_seconds * SLOWNESS)
            for each in betweens:
                each.is_alone = False
        else:
            betweens[1].reset()
        check_whole(expect, run, 60)
        lost = [each["text"] for each in run.events("worker.lost")]
        expect("who was lost came back", lost and len(run.events("worker.joined")) > 2, lost)
    finally:
        run.end()


def reset_leaver(program, expect):
    """The link of one that leaves is reset while its state is about to move: it has no part in the plan
    that is prepared, and is the only one who has that state."""
    run = ElasticRun(program, "reset-leaver", 0, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(6),
                     "--training.steps", "60", apart=True, waits_for=2)
    try:
        betweens = [Between(run.address()) for _ in range(3)]
        run.workers = [run.spawn("worker", "--join", each.address) for each in betweens[:2]]
        run.wait_for_step(10)
        run.workers.append(run.spawn("worker", "--join", betweens[2].address))
        wait_until(lambda: len(run.events("worker.joined")) == 3, 20 * SLOWNESS)
        run.workers[1].send_signal(signal.SIGTERM)
        wait_until(lambda: len(run.events("plan.made")) == 2, 20 * SLOWNESS)
        betweens[1].reset()
        check_whole(expect, run, 60)
    finally:
        run.end()


def killed_while_awaited(program, expect):
    """Its link is reset while it is stopped, and it dies then: that is noticed."""
    run = ElasticRun(program, "killed", 0, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(20),
                     "--training.steps", "40", apart=True, waits_for=2)
    try:
        between = Between(run.address())
        run.workers = [run.spawn("worker", "--join", address)
                       for address in (between.address, run.address())]
        run.wait_for_step(15)
        run.workers[0].send_signal(signal.SIGSTOP)
        between.reset()
        run.wait_for_event("run.waiting", 15 * SLOWNESS)
        run.workers[0].kill()
        run.join()
        code = run.finish()
        expect("ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
        back = run.events("run.rolled_back")
        expect("its death is known", back and "nobody listens at" in back[0]["absent"], back)
    finally:
        run.end()


def dead_worker(program, expect):
    """A worker dies, and with it state that nobody else has: nobody waits for it for a lease."""
    run = ElasticRun(program, "dead", 2, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(20),
                     "--training.steps", "40", apart=True)
    try:
        run.wait_for_step(15)
        run.signal(2)
        run.join()
        code = run.finish()
        expect("ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
        back = run.events("run.rolled_back")
        expect("says how it is known to be dead", back and "nobody listens at" in back[0]["absent"],
               back)
    finally:
        run.end()


def start_for_a_stop(program, name, *words):
    run = ElasticRun(program, name, 2, *TWO_STAGES, "--training.steps", "1000", *words)
    run.wait_for_step(2)
    return run


def check_saved(expect, run, code):
    expect("ends with code 75", code == STOPPED, f"{code}: {run.errors()[-300:]}")
    verify = run.program.run("verify", run.folder())
    expect("the checkpoint is whole", verify.returncode == 0, verify.stderr.strip())
    name = os.path.basename(os.path.realpath(newest(run.folder())))
    expect("it has every step that was committed", name.endswith(f"{run.steps_done():08d}"),
           f"{name}, {run.steps_done()} steps")
    expect("no step is taken back", not run.events("run.rolled_back"))
    stopping = run.events("run.stopping")
    expect("says how long it may take", stopping and float(stopping[0]["seconds"]) > 1, stopping)


def is_abandoned(run):
    return any("abandoned" in each["reason"] for each in run.events("plan.quiesced"))


def stop_finishes_a_long_step(program, expect):
    """Steps of some 2.5 s: the one in progress is finished and saved. Where something else has the processors it takes
    half as much again as the one before, and is rightly abandoned: then once more."""
    for attempt in range(3):
        run = start_for_a_stop(program, f"long-step-{attempt}", "--device.speed", "0.008")
        try:
            before = run.steps_done()
            run.coordinator.send_signal(signal.SIGTERM)
            code = run.finish()
            if is_abandoned(run) and attempt < 2:
                continue
            check_saved(expect, run, code)
            expect("the step in progress is finished", run.steps_done() == before + 1,
                   f"{before} and {run.steps_done()}")
            return
        finally:
            run.end()


def stop_abandons_a_stuck_step(program, expect):
    """A step that takes far longer than the one before is abandoned; what was committed is saved."""
    run = start_for_a_stop(program, "stuck-step", *SLOW, "--chaos", "w2:slow=300x@step=5",
                           "--elastic.snapshot_interval", "1")  # The stuck worker is given up.
    try:
        run.wait_for_step(5)
        time.sleep(0.5)
        run.coordinator.send_signal(signal.SIGTERM)
        start = time.monotonic()
        code = run.finish()
        took = time.monotonic() - start
        check_saved(expect, run, code)
        expect("in a few seconds", took < 8 * SLOWNESS, f"{took:.1f} s")
        expect("the step is abandoned", is_abandoned(run), run.events("plan.quiesced"))
    finally:
        run.end()


def stop_of_a_stopped_coordinator(program, expect):
    """It is stopped itself for longer than it may take to end: its workers are there, and save."""
    run = start_for_a_stop(program, "stopped-in-a-stop", "--device.speed", "0.008", "--checkpoint.interval", "1",
                           *lease(2))
    try:
        run.coordinator.send_signal(signal.SIGTERM)
        run.wait_for_event("run.stopping", 5 * SLOWNESS)
        run.coordinator.send_signal(signal.SIGSTOP)
        time.sleep(float(run.events("run.stopping")[0]["seconds"]) + 0.5)
        run.coordinator.send_signal(signal.SIGCONT)
        check_saved(expect, run, run.finish())
        expect("says that it was paused itself", run.events("coordinator.paused"))
    finally:
        run.end()


def stop_while_workers_are_waited_for(program, expect):
    """One of two replicas is gone, and training waits for another worker: what the other one holds is
    saved."""
    run = ElasticRun(program, "waiting", 2, "--parallelism.data_parallel_replicate_degree", "2",
                     *SLOW, "--training.steps", "1000", "--elastic.min_workers", "2")
    try:
        run.wait_for_step(5)
        run.signal(2)
        run.wait_for_event("run.paused", 15 * SLOWNESS)
        run.coordinator.send_signal(signal.SIGTERM)
        check_saved(expect, run, run.finish())
    finally:
        run.end()


def stop_while_workers_measure(program, expect):
    """The planner chooses the plan, and those who are back after a restart of the coordinator measure their
    devices: what they hold is saved without that."""
    run = ElasticRun(program, "measuring", 2, "--parallelism.pipeline_parallel_degree", "auto",
                     "--device.speed", "0.02", "--training.steps", "1000", apart=True)
    try:
        run.wait_for_step(5)
        run.coordinator.kill()
        run.coordinator.wait()
        joined = len(run.events("worker.joined"))
        run.resume()
        wait_until(lambda: len(run.events("worker.joined")) == joined + 2, 20 * SLOWNESS)
        run.coordinator.send_signal(signal.SIGTERM)
        check_saved(expect, run, run.finish())
    finally:
        run.end()


def leaver_while_workers_are_waited_for(program, expect):
    """The one that is left is told to leave, and holds what nobody else has: it stays until others are here."""
    run = ElasticRun(program, "leaver", 2, "--parallelism.data_parallel_replicate_degree", "2",
                     *SLOW, "--training.steps", "30", "--elastic.min_workers", "2", apart=True)
    try:
        run.wait_for_step(5)
        run.signal(2)
        run.wait_for_event("run.paused", 15 * SLOWNESS)
        run.signal(1, signal.SIGTERM)
        run.wait_for_event("worker.cannot_leave", 15 * SLOWNESS)
        for _ in range(2):
            run.join()
        code = run.finish()
        expect("the run ends well", code == 0, f"code {code}: {run.errors()}")
        expect("it was let go", run.events("worker.left"))
        expect("no step is taken back", not run.events("run.rolled_back"))
    finally:
        run.end()


def pause_that_lasts_too_long(program, expect):
    """Nobody comes in time: what is here is saved before the run ends."""
    run = ElasticRun(program, "too-long", 2, "--parallelism.data_parallel_replicate_degree", "2",
                     *SLOW, "--training.steps", "1000", "--elastic.min_workers", "2",
                     "--comm.init_timeout_seconds", "4")
    try:
        run.wait_for_step(5)
        run.signal(2)
        check_saved(expect, run, run.finish())
    finally:
        run.end()


def second_signal_kills(program, expect):
    run = start_for_a_stop(program, "second-signal", "--device.speed", "0.008")
    try:
        run.coordinator.send_signal(signal.SIGTERM)
        run.coordinator.send_signal(signal.SIGTERM)  # As `timeout` does; it counts as the same.
        time.sleep(0.6)
        run.coordinator.send_signal(signal.SIGTERM)
        start = time.monotonic()
        code = run.finish()
        expect("ends at once", code == KILLED and time.monotonic() - start < 1 * SLOWNESS, code)
        expect("leaves no orphan", not run.orphans())
    finally:
        run.end()


def lost_journal(program, expect):
    """The coordinator comes back without its journal: the run begins from the checkpoint."""
    run = ElasticRun(program, "journal", 2, *TWO_STAGES, *SLOW, "--checkpoint.interval", "10",
                     "--training.steps", "40", apart=True)
    try:
        run.wait_for_step(15)
        run.coordinator.kill()
        run.coordinator.wait()
        for path in glob.glob(os.path.join(run.folder(), "journal.sqlite*")):
            os.unlink(path)
        joined = len(run.events("worker.joined"))
        run.resume()
        code = run.finish()
        expect("ends with code 0", code == 0, f"{code}: {run.errors()[-300:]}")
        lost = run.events("journal.lost")
        expect("says where it begins", lost and lost[0]["step"] == "10", lost)
        steps = [row[0] for row in run.journal("SELECT step FROM commits ORDER BY step")]
        expect("goes on from the checkpoint", steps == list(range(10, 40)), steps[:3])
        again = len(run.events("worker.joined")) - joined
        expect("every worker comes back once", again == 2, again)
        codes = [worker.returncode for worker in run.workers]
        expect("every worker ends with code 0", codes == [0, 0], codes)
    finally:
        run.end()


def full_journal_disk(program, expect):
    """The journal cannot grow for a while: the run waits for that, and loses nothing."""
    run = ElasticRun(program, "full", 2, *TWO_STAGES, *SLOW, *NO_OTHER_STATE, *lease(2),
                     "--training.steps", "60", apart=True, ignores_file_limit=True)
    try:
        run.wait_for_step(15)
        log = os.path.join(run.folder(), "journal.sqlite-wal")
        coordinator = run.coordinator.pid
        endless = resource.RLIM_INFINITY
        resource.prlimit(coordinator, resource.RLIMIT_FSIZE, (os.path.getsize(log) + 1, endless))
        waiting = run.wait_for_event("journal.waiting")
        time.sleep(3 * SLOWNESS)  # Longer than a lease.
        expect("says so, once", waiting and waiting is not True and
               len(run.events("journal.waiting")) == 1, waiting)
        stuck_at = run.steps_done()
        expect("waits", not run.has_ended() and stuck_at < 60, stuck_at)
        resource.prlimit(coordinator, resource.RLIMIT_FSIZE, (endless, endless))
        check_whole(expect, run, 60)
        expect("says that it is over", run.events("journal.written"))
        expect("nobody is lost", not run.events("worker.lost"))
    finally:
        run.end()


TRIALS = {
    "restart with a stopped worker": restart_with_a_stopped_worker,
    "stopped coordinator": lambda *with_: stopped_coordinator(*with_, 2.8),
    "stopped coordinator for long": lambda *with_: stopped_coordinator(*with_, 7),
    "a link that is reset": lambda *with_: reset_link(*with_, "reset", *NO_OTHER_STATE),
    "a link that is reset, with snapshots": lambda *with_: reset_link(*with_, "reset-copies"),
    "all links, for a while": lambda *with_: reset_link(*with_, "all-reset", *NO_OTHER_STATE,
                                                        waits_seconds=3),
    "the link of a leaver": reset_leaver,
    "killed while it is waited for": killed_while_awaited,
    "a dead worker": dead_worker,
    "stop in a long step": stop_finishes_a_long_step,
    "stop in a stuck step": stop_abandons_a_stuck_step,
    "stop of a stopped coordinator": stop_of_a_stopped_coordinator,
    "stop while workers are waited for": stop_while_workers_are_waited_for,
    "stop while workers measure": stop_while_workers_measure,
    "leaver while workers are waited for": leaver_while_workers_are_waited_for,
    "a pause that lasts too long": pause_that_lasts_too_long,
    "stop of a restarted one": stop_of_a_restarted_one,
    "a held terminal": held_terminal,
    "second signal": second_signal_kills,
    "lost journal": lost_journal,
    "full disk of the journal": full_journal_disk,
}


def carry_out(program, name):
    expect = Claims(program, name)
    start = time.monotonic()
    try:
        TRIALS[name](program, expect)
    except Exception:  # Any: the other trials go on.
        expect("can be judged", False, traceback.format_exc(limit=3))
    print(f"      {name}: {time.monotonic() - start:.1f} s", flush=True)


def main():
    only = sys.argv.pop() if sys.argv[-1] in TRIALS else ""
    program = Program()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for name in TRIALS:
            if only in name:
                pool.submit(carry_out, program, name)
    program.finish()


main()
