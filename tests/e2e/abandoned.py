"""A coordinator that is gone for good: its workers write what they hold before they end, and the run
goes on from there with other workers, though no checkpoint was due."""
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest, read_model, worst_relative  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import Program  # noqa: E402

STEPS = 60
LAYOUT = ["--parallelism.pipeline_parallel_degree", "2"]
WORDS = [*LAYOUT, "--training.steps", str(STEPS), "--device.speed", "0.25",
         "--checkpoint.interval", "1000", "--elastic.snapshot_interval", "0",
         "--elastic.coordinator_timeout_seconds", "2"]
TOLERANCE = 1e-4


def main():
    program = Program()
    run = ElasticRun(program, "abandoned", 2, *WORDS, apart=True)
    run.wait_for_step(20)
    run.coordinator.kill()
    run.coordinator.wait()
    codes = [worker.wait(timeout=30) for worker in run.workers]
    program.expect("the workers give up", all(code not in (0, -9) for code in codes), codes)
    said = run.errors().count("what this worker holds is in ")
    program.expect("each says where its state is", said == 2, run.errors()[-400:])
    left = glob.glob(os.path.join(run.folder(), "checkpoint", "*.tmp", "HELD"))
    program.expect("and it is there", len(left) == 2, left)
    committed = run.journal("SELECT max(step) FROM commits")[0][0] + 1

    run.workers.clear()
    run.resume()
    for _ in range(2):
        run.join()
    code = run.finish()
    program.expect("others end the run", code == 0, run.errors()[-400:])
    adopted = run.events("checkpoint.adopted")
    program.expect("a checkpoint was made of what was left", len(adopted) == 1)
    # The last commit may have died with the coordinator that had journaled it.
    program.expect("of the newest state", adopted and committed - int(adopted[0]["step"]) in (0, 1),
                   f"{adopted}, {committed} steps were committed")
    program.expect("and nothing is left of the rest",
                   not glob.glob(os.path.join(run.folder(), "checkpoint", "*.tmp")))
    complaints = run.complaints_about_journal(STEPS)
    program.expect("every step is committed once", not complaints, complaints)
    if code == 0:
        reference = program.run_reference("reference", "--training.steps", str(STEPS), *LAYOUT)
        worst, tensor = worst_relative(read_model(newest(run.folder())),
                                       read_model(newest(reference + "/final")))
        program.expect("the weights are those of one process", worst <= TOLERANCE,
                       f"{worst:.1e} {tensor}")
    program.finish()


main()
