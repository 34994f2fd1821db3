#!/usr/bin/env python3
"""Trains with an older commit and with the working tree, and compares the final weights and optimizer
states bit for bit, on the same machine: every layout, schedule, reducer and precision that tests
train, and every policy with one pipeline replica. Not part of the gate: it builds two trees.

    tests/compare_weights/compare_weights.py [COMMIT]       builds both, then compares
    ... --old PROGRAM --new PROGRAM                         two builds that are there already
    ... --only WORD [--steps N] [--jobs N] [--list]         a part of the trainings

COMMIT is the one before training modes came in, unless another is given. Programs are looked for
together with the emulated GPU of their build; without it the trainings on GPUs fail. Prints a line per
training and ends with 1 if any differs.
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BEFORE = "d5c99ee"
JOB = os.path.join(SOURCE, "tests", "support", "small_job.toml")
TARGETS = ["skein", "skein_emulated_cuda", "skein_emulated_nccl"]
TIMEOUT_SECONDS = 300
# Keys are spelled as in the older commit; where a build does not know one, these are tried.
RENAMED = {"sync.segment_steps": ("sync.round_steps",)}

# A training: `words` of the command line, `gpu` for the emulated one, `resumes` for "goes on from the
# checkpoint of half of its steps", `plan` for the text of a plan to train with, or "found" for the one
# that the older commit's planner has found: what devices are measured to be is never the same twice.
Training = collections.namedtuple("Training", "name words gpu resumes plan",
                                  defaults=(False, False, None))


def stages(count):
    return ["--parallelism.pipeline_parallel_degree", str(count)]


def replicas(*counts):
    return ["--parallelism.replicas", ",".join(map(str, counts))]


def schedule(name):
    return ["--parallelism.pipeline_parallel_schedule", name]


TWO_BY_TWO = stages(2) + ["--parallelism.data_parallel_replicate_degree", "2"]
LAYER_BY_LAYER = ["--comm.bucket_cap_mb", "0.01"]
UNTIED = ["--model.tie_word_embeddings", "false"]
LLAMA = ["--model.name", "llama"]

LAYOUTS = {
    "1x1": [],
    "2x1": stages(2),
    "3x1": stages(3),
    "4x1": stages(4),
    "2x2": TWO_BY_TWO,
    "2x2 in buckets": TWO_BY_TWO + LAYER_BY_LAYER,
    "2x2 at the end": TWO_BY_TWO + ["--comm.bucket_cap_mb", "0"],
    "1x4 in buckets": replicas(4) + LAYER_BY_LAYER,
    "1x1 + 1x3": replicas(1, 3),
    "1x1 + 1x3 recomputed": replicas(1, 3) + ["--training.recompute", "true"] + LAYER_BY_LAYER,
    "layout 3,1": ["--parallelism.layout", "3,1"],
    "untied 2x1": stages(2) + UNTIED,
    "llama 2x1": stages(2) + LLAMA,
    "llama 2x2 in buckets": TWO_BY_TWO + LAYER_BY_LAYER + LLAMA,
    "2x1 with sgd": stages(2) + ["--optimizer.name", "sgd", "--optimizer.momentum", "0.9"],
    "2x1 without clipping": stages(2) + ["--training.max_norm", "0"],
}
ONE_STAGE_PER_RANK = ("1F1B-PB", "ZBH1", "ZBH2", "Greedy")  # Beside 1F1B and GPipe, above.
SEVERAL_STAGES_PER_RANK = ("Interleaved1F1B", "Greedy")
VIRTUAL = {
    "2 ranks of 2 stages": stages(2) + ["--parallelism.virtual_stages", "2"],
    "1 + 2 replicas of 3 stages": replicas(1, 2) + ["--parallelism.virtual_stages", "3"] +
                                  LAYER_BY_LAYER,
}
REDUCERS = {"sum": [], "mean": [], "adasum": [], "topk": ["--sync.density", "0.1"],
            "hitopk": ["--sync.density", "0.1"], "fp16": [], "bf16": []}
POLICIES = ("allreduce", "sdpipe", "partial_reduce", "prague", "adpsgd", "adpsgd_paired",
            "overlapped", "auto", "ps", "ps_async", "ps_bounded", "hetpipe", "grouped_ps")
ROWS = {1: [8], 2: [5, 3], 3: [4, 1, 3], 4: [1, 3, 2, 2]}
PRECISIONS = ("float32", "tf32", "bfloat16")
ON_GPU = ["--device.type", "cuda", "--training.seq_len", "16", "--model.n_layer", "2",
          "--model.n_embd", "32", "--training.global_batch_size", "8"]
GPU_LAYOUTS = {"1x1": stages(1), "2x2": TWO_BY_TWO, "3x1": stages(3),
               "1x3": replicas(3) + ["--training.micro_batch_size", "3",
                                     "--training.global_batch_size", "6"]}


def split_plan(first, second):
    """Two stages whose replicas take these rows of each micro-batch, on workers 1, 2, ..."""
    lines = ["plan generation=1 schedule=1F1B microbatches=2 rows=8 recompute=0"]
    number, ids = 0, []
    for stage, (layers, rows) in enumerate((("0..2", first), ("2..4", second))):
        texts, begin, members = [], 0, []
        for count in rows:
            texts.append(f"r{number}@w{number + 1}[{begin}+{count}]")
            members.append(f"r{number}")
            begin += count
            number += 1
        lines.append(f"stage layers={layers} rank={stage} replicas={','.join(texts)}")
        ids.append(members)
    lines += [f"group stage={stage} members={','.join(members)}" for stage, members in enumerate(ids)]
    lines.append(f"group tied members={','.join(ids[0] + ids[1])}")
    return "\n".join(lines + ["rank 0F0,0F1,0B0,0B1", "rank 1F0,1B0,1F1,1B1"]) + "\n"


def trainings():
    for name, words in LAYOUTS.items():
        for each in ("1F1B", "GPipe"):
            yield Training(f"{name}, {each}", words + schedule(each))
    for name, words in {"3x1": stages(3), "2x2 in buckets": TWO_BY_TWO + LAYER_BY_LAYER}.items():
        for each in ONE_STAGE_PER_RANK:
            yield Training(f"{name}, {each}", words + schedule(each))
    for name, words in VIRTUAL.items():
        for each in SEVERAL_STAGES_PER_RANK:
            yield Training(f"{name}, {each}", words + schedule(each))
    for first, rows in ROWS.items():
        for second, others in ROWS.items():
            yield Training(f"split of {first} to {second} replicas",
                           ["--model.n_layer", "2", "--training.micro_batch_size", "8"],
                           plan=split_plan(rows, others))
    for name, words in REDUCERS.items():
        for layout, more in {"2x2": TWO_BY_TWO, "1x4 in buckets": replicas(4) + LAYER_BY_LAYER,
                             "1x1 + 1x3": replicas(1, 3)}.items():
            yield Training(f"{layout}, reducer {name}", more + words + ["--sync.reducer", name])
    for policy in POLICIES:
        for count in (1, 3):
            yield Training(f"policy {policy}, one pipeline replica of {count}",
                           stages(count) + UNTIED + [
                               "--training.micro_batch_size", "2", "--training.global_batch_size",
                               "4", "--sync.policy", policy, "--sync.segment_steps", "3"])
    for count in (2, 3):
        yield Training(f"auto on {count} workers",
                       ["--workers", str(count)] + schedule("1F1B"), plan="found")
    for count in (1, 2, 4):
        yield Training(f"3x1, goes on in {count}", stages(count), resumes=True)
    for precision in PRECISIONS:
        for layout, words in GPU_LAYOUTS.items():
            yield Training(f"GPU, {layout}, {precision}",
                           ON_GPU + words + ["--device.precision", precision], gpu=True)


class Side:
    """One build, and the trainings done with it."""

    def __init__(self, name, skein, folder):
        self.name = name
        self.skein = os.path.abspath(skein)
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        listing = subprocess.run([self.skein, "config", "keys"], check=True, capture_output=True,
                                 text=True).stdout
        self.keys = set(re.findall(r"\b[a-z_]+\.[a-z_0-9]+\b", listing))

    def spelled(self, words):
        """The words with keys as this build knows them."""
        result = []
        for word in words:
            key = word[2:] if word.startswith("--") else ""
            if "." in key and key not in self.keys:
                known = [each for each in RENAMED.get(key, ()) if each in self.keys]
                assert known, f"{self.name}: no key {key}; say in RENAMED what it is called now"
                word = "--" + known[0]
            result.append(word)
        return result

    def environment(self, training):
        built = os.path.dirname(self.skein)
        # The only reason to change a plan would be what else the machine does.
        environment = {key: value for key, value in os.environ.items() if key != "LOCAL_RANK"}
        if training.gpu:
            for variable, library in (("SKEIN_CUDA_PLUGIN", "libskein_emulated_cuda.so"),
                                      ("SKEIN_NCCL_LIBRARY", "libskein_emulated_nccl.so")):
                found = glob.glob(os.path.join(built, "**", library), recursive=True)
                assert found, f"{self.name}: no {library} below {built}"
                environment[variable] = found[0]
            environment["EMULATED_CUDA_GPUS"] = "4"
        return environment

    def train(self, name, training, words):
        """The checkpoint folder of the end."""
        dump = os.path.join(self.folder, re.sub(r"\W+", "-", name))
        words = self.spelled([*words, "--elastic.watch_speeds", "false"])
        done = subprocess.run([self.skein, "train", JOB, "--job.dump_folder", dump, "--quiet", *words],
                              env=self.environment(training), timeout=TIMEOUT_SECONDS, text=True,
                              capture_output=True, check=False, cwd=self.folder)
        runs = glob.glob(os.path.join(dump, "*-*"))
        if done.returncode != 0 or not runs:
            raise RuntimeError(f"{self.name} ends with {done.returncode}: "
                               f"{done.stderr.strip().splitlines()[-1:]}")
        return os.path.realpath(os.path.join(runs[0], "checkpoint", "latest"))

    def carry_out(self, training, steps):
        words = [*training.words, "--training.steps", str(steps)]
        if training.plan:
            path = os.path.join(self.folder, re.sub(r"\W+", "-", training.name) + ".plan")
            with open(path, "w", encoding="utf-8") as file:
                file.write(training.plan)
            words += ["--parallelism.plan", path]
        if training.resumes:
            half = self.train(training.name + " first", training, [
                *stages(3), "--training.steps", str(steps), "--checkpoint.interval", str(steps // 2)])
            start = os.path.join(os.path.dirname(half), f"step-{steps // 2:08d}")
            words += ["--checkpoint.initial_load_path", start]
        return self.train(training.name, training, words)


def read_tensors(folder):
    """{"model NAME" or "optimizer NAME": (type, shape, bytes)} of a checkpoint's files."""
    tensors = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        kind = os.path.basename(path).split("-")[0]
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[f"{kind} {name}"] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors


def differences(old, new):
    """Names of tensors that differ in any bit or that only one has, and how many there are."""
    before, after = read_tensors(old), read_tensors(new)
    assert len(before) > 1, f"{old} has {len(before)} tensors"
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)], len(names)


def compare(training, sides, steps):
    """(whether all bits agree, what to say of it)."""
    start = time.monotonic()
    try:
        if training.plan == "found":
            end = sides[0].train(training.name + " found", training, [
                *training.words, "--parallelism.pipeline_parallel_degree", "auto",
                "--training.steps", str(steps)])
            with open(os.path.join(end, "..", "..", "plan.txt"), encoding="utf-8") as file:
                training = training._replace(plan=file.read())
        old, new = (side.carry_out(training, steps) for side in sides)
        found, count = differences(old, new)
        took = f"{time.monotonic() - start:.1f} s"
        if not found:
            return True, f"{count} tensors, {took}"
        again = differences(old, sides[0].carry_out(
            training._replace(name=training.name + " again"), steps))[0]
        hint = "; the older commit differs from itself, too" if again else ""
        return False, f"{len(found)} of {count} tensors differ, as {found[0]}{hint}, {took}"
    except (RuntimeError, AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)[-300:]


def built(folder, jobs):
    """Configures and builds a tree as the release preset does; the path of its program."""
    subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "-j", str(jobs), "--target", *TARGETS],
                   cwd=folder, check=True)
    return os.path.join(folder, "build", "release", "skein")


def worktree(commit):
    """A checkout of `commit` under the build folder; made once."""
    commit = subprocess.run(["git", "rev-parse", "--short", commit + "^{commit}"], cwd=SOURCE,
                            check=True, capture_output=True, text=True).stdout.strip()
    folder = os.path.join(SOURCE, "build", "compare_weights", commit)
    if not os.path.exists(folder):
        subprocess.run(["git", "worktree", "prune"], cwd=SOURCE, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", folder, commit], cwd=SOURCE, check=True)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default=BEFORE)
    parser.add_argument("--old", help="program of the older commit, instead of building it")
    parser.add_argument("--new", help="program of the working tree, instead of building it")
    parser.add_argument("--only", default="", help="trainings whose name has this word")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [each for each in trainings() if options.only in each.name]
    if options.list or not chosen:
        print("\n".join(each.name for each in chosen) or f"no training named {options.only}")
        sys.exit(0 if chosen else 2)
    old = options.old or built(worktree(options.commit), options.jobs)
    new = options.new or built(SOURCE, options.jobs)
    folder = tempfile.mkdtemp(prefix="skein-compare-")
    sides = [Side("old", old, folder), Side("new", new, folder)]
    width = max(len(each.name) for each in chosen)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for training, (agrees, text) in zip(chosen, pool.map(
                lambda each: compare(each, sides, options.steps), chosen)):
            failed += not agrees
            print(f"{training.name:{width}}  {'same bits' if agrees else 'DIFFERS  '}  {text}",
                  flush=True)
    print(f"{len(chosen)} trainings of {options.steps} steps: " +
          ("all have the same bits" if failed == 0 else f"{failed} do not have the same bits"))
    if failed:
        print(f"their runs are left in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


main()
