#!/usr/bin/env python3
"""Whatever is wrong with the input is said in one line: what, where and what to do."""
import array
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoints import newest  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import SMALL_JOB, Program  # noqa: E402

USAGE, BAD_DATA = 2, 3
# Behind the frame's head, the round table, the root pointer and the magic number: 8 bytes each.
HELLO_VERSION_OFFSET = 32


def main():
    program = Program()

    def refuses(claim, code, words, *args, job=SMALL_JOB):
        result, run = program.train("bad", *args, job=job)
        lines = result.stderr.strip().splitlines()
        holds = (result.returncode == code and len(lines) == 1 and
                 all(word in lines[0] for word in words))
        program.expect(claim, holds, f"code {result.returncode}: {result.stderr.strip()}")

    def job_with(text):
        path = os.path.join(program.folder, "job.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    refuses("unknown key", USAGE, ["job.toml:2", "did you mean training.seq_len"],
            job=job_with("[training]\nseqlen = 3\n"))
    refuses("unknown section", USAGE, ["job.toml:1", "did you mean training"],
            job=job_with("[trainign]\nsteps = 3\n"))
    refuses("wrong type", USAGE, ["job.toml:2", "expected integer"],
            job=job_with("[training]\nsteps = \"many\"\n"))
    refuses("no TOML", USAGE, ["job.toml:1"], job=job_with("this is no job\n"))
    refuses("a table without a name", USAGE, ["job.toml:1", "expected"], job=job_with("[.]\n"))
    refuses("a time that no clock has", USAGE, ["comm.train_timeout_seconds", "1e7"],
            "--comm.train_timeout_seconds", "1e20")
    refuses("missing job file", USAGE, ["no job file"], job="none.toml")
    refuses("unknown key on the command line", USAGE, ["did you mean optimizer.lr"],
            "--optimizer.lrr", "1")
    refuses("value out of range", USAGE, ["--training.steps", "at least 1"],
            "--training.steps", "0")
    refuses("impossible layout", USAGE, ["add up"], "--parallelism.layout", "4,2,2")
    refuses("too many stages", USAGE, ["at most 6 stages"],
            "--parallelism.pipeline_parallel_degree", "7")
    refuses("too few workers", USAGE, ["needs 4 workers"], "--parallelism.replicas", "1,3",
            "--workers", "2")
    refuses("missing data file", BAD_DATA, ["none.txt", "No such file"], "--data.path", "none.txt")
    short = os.path.join(program.folder, "short.bin")
    with open(short, "wb") as file:
        file.write(b"abc")
    refuses("truncated data file", BAD_DATA, ["short.bin", "truncated"],
            "--data.dataset", "tokens", "--data.path", short)
    refuses("a folder that cannot be written", 1, ["/proc/none"], "--job.dump_folder", "/proc/none")

    _, run = program.train("good", "--training.steps", "2")
    good = newest(run)
    listing = sorted(os.listdir(good))
    refuses("checkpoint of another shape", USAGE, ["wte.weight", "[256, 64]", "[256, 128]"],
            "--model.n_embd", "128", "--checkpoint.initial_load_path", good)
    refuses("missing checkpoint", BAD_DATA, ["no complete checkpoint"],
            "--checkpoint.initial_load_path", program.folder)
    broken = os.path.join(program.folder, "broken")
    shutil.copytree(good, broken)
    shard = os.path.join(broken, "model-00001-of-00001.safetensors")
    os.truncate(shard, os.path.getsize(shard) - 100)
    refuses("truncated checkpoint", BAD_DATA, ["model-00001", "truncated"],
            "--checkpoint.initial_load_path", broken)
    shutil.copy(os.path.join(good, os.path.basename(shard)), shard)
    with open(shard, "r+b") as file:
        file.seek(-50, os.SEEK_END)
        file.write(b"\xff")
    refuses("damaged checkpoint", BAD_DATA, ["CRC-32C"],
            "--checkpoint.initial_load_path", broken)
    program.expect("nothing was overwritten", sorted(os.listdir(good)) == listing)
    verify = program.run("verify", broken)
    program.expect("verify finds the damage", verify.returncode == BAD_DATA)

    changed_data(program)
    for name in LAYOUTS:
        bad_token(program, name)
    garbage(program)
    another_version(program)
    result = program.run("tarin", SMALL_JOB)
    program.expect("unknown command", result.returncode == USAGE and
                   "did you mean train" in result.stderr, result.stderr.strip())
    result = program.run("status", "127.0.0.1:1")
    program.expect("status without a coordinator", result.returncode == 1 and
                   "nobody answers" in result.stderr, result.stderr.strip())
    for words in (["status", "outputs/nope"], ["drain", "outputs/nope", "--worker", "1"]):
        result = program.run(*words)
        program.expect(f"{words[0]} of a directory that is not there", result.returncode == BAD_DATA and
                       result.stderr == "skein: no run folder outputs/nope\n",
                       result.stderr.strip())
    for join in ("foo", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", ":29400"):
        result = program.run("worker", f"--join={join}")
        program.expect(f"--join '{join}' is refused at once", result.returncode == USAGE and
                       "--join" in result.stderr and "host:port" in result.stderr,
                       result.stderr.strip())
    result = program.run("coordinator", SMALL_JOB, "--listen", "0.0.0.0:0")
    program.expect("a bind beyond loopback", result.returncode == USAGE and
                   "--insecure" in result.stderr, result.stderr.strip())
    program.finish()


def changed_data(program):
    """Somebody writes into the data of a run; a worker that is killed makes a new plan."""
    data = os.path.join(program.folder, "changed.txt")
    shutil.copy("/usr/share/common-licenses/GPL-3", data)
    run = ElasticRun(program, "changed", 2, "--data.path", data, "--training.steps", "100000",
                     "--device.speed", "0.2", apart=True)
    try:
        run.wait_for_step(3)
        with open(data, "r+b") as file:
            file.write(b"x" * 10_000)
        run.signal(2)
        code = run.finish(30)
        program.expect("data that somebody has written into ends the run with the next plan",
                       code == BAD_DATA and "is not that of the coordinator" in run.errors(),
                       f"code {code}: {run.errors()[-200:]}")
    finally:
        run.end()


LAYOUTS = {
    "stages": ["--parallelism.pipeline_parallel_degree", "3"],
    "local updates": ["--parallelism.pipeline_parallel_degree", "1",
                      "--parallelism.data_parallel_replicate_degree", "3",
                      "--sync.policy", "overlapped", "--sync.round_steps", "4"],
}


def bad_token(program, name):
    """A token that is none in data too large to be looked at as a whole: what is trained is kept."""
    count, vocab_size = 1 << 21, 256
    good = array.array("H", (7 * n % 251 for n in range(count)))
    bad = array.array("H", good)
    # Between the pieces that the digest looks at: both files have the same.
    for at in range(1000, count, 12 * (count - 64) // 1023):
        bad[at] = vocab_size
    data = os.path.join(program.folder, "large.bin")
    held_out = os.path.join(program.folder, "held_out.bin")

    def write(tokens, path=data):
        with open(path, "wb") as file:
            tokens.tofile(file)

    write(bad)
    write(good[:1000], held_out)
    run = ElasticRun(program, name.replace(" ", "-"), 3, *LAYOUTS[name], "--data.dataset", "tokens",
                     "--data.path", data, "--data.validation_path", held_out, "--training.steps", "1000")
    try:
        code = run.finish(60)
        done = run.steps_done()
        program.expect(f"{name}: a token that is none ends the run when a second worker has read it",
                       code == BAD_DATA and "large.bin" in run.errors() and
                       "beyond model.vocab_size" in run.errors() and
                       len(run.events("worker.failed")) == 2,
                       f"code {code} after {done} steps: {run.errors()[-300:]}")
        write(good)
        run.coordinator = run.spawn("train", "--resume", run.folder(), "--training.steps",
                                    str(done + 5))
        code = run.finish(60)
        steps = [line["step"] for line in run.steps()]
        program.expect(f"{name}: with the token mended the run goes on where it was",
                       code == 0 and done > 0 and steps == sorted(set(steps)) and
                       steps[-1] == done + 5 and not run.events("run.rolled_back"),
                       f"code {code}, {len(steps)} steps after {done}: {run.errors()[-300:]}")
    finally:
        run.end()


def start_coordinator(program):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    coordinator = subprocess.Popen(
        [program.skein, "coordinator", SMALL_JOB, "--listen", f"127.0.0.1:{port}",
         "--training.steps", "2"],
        cwd=program.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    coordinator.stderr.readline()  # It listens.
    return coordinator, port


def age(server, port):
    """Passes one connection on to `port`, with the version in its hello changed to 999."""
    worker, _ = server.accept()
    with worker, socket.create_connection(("127.0.0.1", port)) as coordinator:
        hello = bytearray(worker.recv(4096))
        version = HELLO_VERSION_OFFSET
        hello[version:version + 4] = struct.pack("<I", 999)
        coordinator.sendall(hello)
        while answer := coordinator.recv(4096):
            worker.sendall(answer)


def another_version(program):
    """A worker of another release is told so, leaves, and disturbs nobody."""
    coordinator, port = start_coordinator(program)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=age, args=(server, port))
        thread.start()
        stranger = program.run("worker", "--join", f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    worker = program.run("worker", "--join", f"127.0.0.1:{port}")
    out, _ = coordinator.communicate(timeout=60)
    lines = stranger.stderr.strip().splitlines()
    program.expect("a worker of another protocol version says so in one line and leaves",
                   stranger.returncode == USAGE and len(lines) == 1 and "version 999" in lines[0] and
                   "same release" in lines[0], f"code {stranger.returncode}: {lines}")
    program.expect("its coordinator says so too and trains on",
                   coordinator.returncode == 0 and worker.returncode == 0 and
                   "version 999" in out, out.splitlines()[0] if out else "no output")


def garbage(program):
    """A coordinator that is sent garbage says so, and trains on when real workers come."""
    coordinator, port = start_coordinator(program)
    address = f"127.0.0.1:{port}"
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    worker = program.run("worker", "--join", address)
    out, _ = coordinator.communicate(timeout=60)
    program.expect("garbage on the coordinator's port is turned away and training goes on",
                   coordinator.returncode == 0 and worker.returncode == 0 and
                   "no Skein message" in out, out.splitlines()[0] if out else "no output")


main()
