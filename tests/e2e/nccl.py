#!/usr/bin/env python3
"""Replicas on GPUs add up their gradients among themselves, lose a worker in between, and say so
where they cannot.  nccl.py SKEIN PLUGIN NCCL, both emulated."""
import glob
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from elastic_runs import ElasticRun, wait_until  # noqa: E402
from running import Program  # noqa: E402

STEPS = 8  # An emulated GPU takes its time.
TOLERANCE = 1e-4  # Losses differ as rows are cut differently and sums made in another order.
REPLICAS = ["--parallelism.pipeline_parallel_degree", "1",
            "--parallelism.data_parallel_replicate_degree", "3",
            "--device.precision", "float32", "--training.steps", str(STEPS),
            "--training.seq_len", "16", "--model.n_layer", "1", "--model.n_embd", "32",
            "--training.global_batch_size", "6", "--training.micro_batch_size", "3"]
SMALL = ["--device.precision", "float32", "--training.steps", str(STEPS),
         "--training.seq_len", "16", "--model.n_layer", "3", "--model.n_embd", "32",
         "--training.global_batch_size", "8", "--training.micro_batch_size", "2"]
STAGES = [*SMALL, "--parallelism.pipeline_parallel_degree", "3",
          "--parallelism.pipeline_parallel_schedule", "1F1B"]
MIXED = [*SMALL, "--parallelism.pipeline_parallel_degree", "2",
         "--parallelism.data_parallel_replicate_degree", "2",
         "--parallelism.pipeline_parallel_schedule", "GPipe"]
PASSED_ON = "go from device to device"
FALLBACK = "go by way of the hosts"
SHRUNK = "have shrunk their group of 3 members to one of 2"


class GpuRun(ElasticRun):
    """Workers that have a GPU each: to NCCL, each is on a host of its own."""

    one_host = False

    def join(self, *words):
        host = 0 if self.one_host else len(self.workers)
        self.environment["NCCL_HOSTID"] = f"host-{host}"
        return super().join(*words)


class OneHostRun(GpuRun):
    one_host = True


def losses(run):
    """Of each step, the last time it was done."""
    return list({line["step"]: line["loss"] for line in run.steps()}.values())


def worst(got, wanted):
    pairs = list(zip(got, wanted))
    return max(abs(a - b) / abs(b) for a, b in pairs) if len(got) == len(wanted) else 9


def ended_well(run):
    code = run.finish(150)
    return code == 0, f"exit {code}: {run.errors()[-300:]}"


def check_links(program, gpus):
    """Activations between stages."""
    expected = {}
    for name, workers, layout in (("stages", 3, STAGES), ("replicas", 4, MIXED)):
        host = ElasticRun(program, f"{name}-host", workers, *layout, apart=True)
        program.expect(f"{name}: processors train", *ended_well(host))
        expected[name] = losses(host)
        run = GpuRun(program, f"{name}-gpu", workers, *layout, *gpus, apart=True)
        program.expect(f"{name}: so do GPUs, which pass on activations themselves",
                       *ended_well(run))
        said = run.errors()
        program.expect(f"{name}: between all neighbours",
                       PASSED_ON in said and FALLBACK not in said, said[-300:])
        program.expect(f"{name}: with the same losses",
                       worst(losses(run), expected[name]) < TOLERANCE,
                       f"off by {worst(losses(run), expected[name]):.1e}")
    run = GpuRun(program, "stages-loss", 4, *STAGES, *gpus, apart=True)
    wait_until(lambda: run.steps_done() >= 2, 90)
    run.signal(2)
    program.expect("a spare takes over when a stage is killed", *ended_well(run))
    again = "generation-2/stages-0-1 " + PASSED_ON
    program.expect("among the devices again", again in run.errors(), run.errors()[-300:])
    program.expect("and no sample is lost", worst(losses(run), expected["stages"]) < TOLERANCE,
                   f"off by {worst(losses(run), expected['stages']):.1e}")
    gpu = (["--device", "cuda"], {})
    run = GpuRun(program, "stages-unlike", 3, *STAGES, unlike=[gpu, gpu, ([], {})])
    program.expect("GPUs and a processor train", *ended_well(run))
    program.expect("and say which way their activations go",
                   FALLBACK in run.errors() and "a device of kind 'cpu" in run.errors(), run.errors()[-300:])


def main():
    program = Program()
    os.environ["SKEIN_CUDA_PLUGIN"] = os.path.abspath(sys.argv[2])
    os.environ["SKEIN_NCCL_LIBRARY"] = os.path.abspath(sys.argv[3])

    host = ElasticRun(program, "host", 3, *REPLICAS, "--comm.backend", "gloo", apart=True)
    program.expect("three processors train over Gloo", *ended_well(host))
    expected = losses(host)

    gpus = ["--device.type", "cuda"]
    run = GpuRun(program, "nccl", 3, *REPLICAS, *gpus, "--comm.backend", "nccl", apart=True)
    program.expect("three GPUs train over NCCL", *ended_well(run))
    program.expect("with the losses of the processors", worst(losses(run), expected) < TOLERANCE,
                   f"off by {worst(losses(run), expected):.1e}")

    run = GpuRun(program, "loss", 3, *REPLICAS, *gpus, "--comm.backend", "nccl", apart=True)
    wait_until(lambda: run.steps_done() >= 2, 90)
    run.workers[1].send_signal(signal.SIGKILL)
    program.expect("two of them go on when the third is killed", *ended_well(run))
    program.expect("and have shrunk their group", SHRUNK in run.errors(), run.errors()[-300:])
    program.expect("and lose no sample", worst(losses(run), expected) < TOLERANCE,
                   f"off by {worst(losses(run), expected):.1e}, {len(losses(run))} steps")

    check_links(program, gpus)
    run = OneHostRun(program, "shared", 3, *REPLICAS, *gpus, apart=True)
    program.expect("three workers on one GPU train", *ended_well(run))
    program.expect("by way of their hosts, and say why",
                   FALLBACK in run.errors() and "share the GPU" in run.errors(),
                   run.errors()[-300:])
    program.expect("with the losses of the processors", worst(losses(run), expected) < TOLERANCE)
    run = ElasticRun(program, "refused", 3, *REPLICAS, "--comm.backend", "nccl", apart=True)
    code = run.finish(60)
    program.expect("whoever insists on NCCL without a GPU is told what to change",
                   code not in (0, None) and 'comm.backend is "nccl", but member' in run.errors(),
                   f"exit {code}: {run.errors()[-300:]}")
    left = glob.glob("/dev/shm/skein-nccl-*")
    program.expect("nothing is left behind", not left, str(left))
    program.finish()


main()
