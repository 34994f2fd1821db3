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
TOLERANCE = 1e-4  # Of losses: rows are cut differently, and sums made in another order.
REPLICAS = ["--parallelism.pipeline_parallel_degree", "1",
            "--parallelism.data_parallel_replicate_degree", "3",
            "--device.precision", "float32", "--training.steps", str(STEPS),
            "--training.seq_len", "16", "--model.n_layer", "1", "--model.n_embd", "32",
            "--training.global_batch_size", "6", "--training.micro_batch_size", "3"]
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
    return [line["loss"] for line in run.steps()]


def worst(got, wanted):
    pairs = list(zip(got, wanted))
    return max(abs(a - b) / abs(b) for a, b in pairs) if len(got) == len(wanted) else 9


def ended_well(run):
    code = run.finish(150)
    return code == 0, f"exit {code}: {run.errors()[-300:]}"


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
