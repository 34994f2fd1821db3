#!/usr/bin/env python3
"""Replays pipeline replicas with several claims in flight in float64, with PyTorch: each backward with
the weights of its forward, updates and averages in the order that they had. Weights and gradients agree."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
try:
    import torch
except ImportError:
    print("skipped: needs python3-torch")
    sys.exit(77)
from running import LONG, Program  # noqa: E402

TOLERANCE = 1e-5  # Relative to each tensor's norm, and to each gradient's.
# With the seeds from 1 on, one update has a gradient of which rounding the weights changes ten times as
# much as any other: there float32 itself is 1.3e-5 off on some processors.
FIRST_SEED = 11
MOMENTUM, MAX_NORM = 0.9, 1.0
PEERS = ["sdpipe", "partial_reduce", "prague", "adpsgd", "adpsgd_paired", "overlapped"]
# Stages, pipeline replicas, claims in flight. The short form has each number of claims once.
SHAPES = [(2, 3, 1), (4, 3, 2), (2, 2, 3), (4, 3, 4), (2, 3, 2), (2, 2, 4), (4, 2, 1), (4, 2, 3)]
SHORT = 4


class Replica:
    """A stage of a pipeline replica. Weights are never changed in place: a forward keeps the ones it saw."""

    def __init__(self, heads):
        self.heads = heads
        self.weights, self.momenta, self.gradients = {}, {}, {}
        self.saved = {}  # By step and micro-batch: weights and input of a forward.
        self.addend = None
        self.max_norm = MAX_NORM
        self.norms = []  # Ours and the reference's, of each update.
        self.delay = 0  # Most versions behind.
        self.version = 0

    def run(self, weights, x):
        functional = torch.nn.functional
        if "transformer.wte.weight" in weights:
            x = weights["transformer.wte.weight"][x] + weights["transformer.wpe.weight"][:len(x)]
        width, length, heads = x.shape[-1], x.shape[0], self.heads
        mask = torch.ones(length, length).tril().bool()
        for i in sorted({int(n.split(".")[2]) for n in weights if ".h." in n}):
            layer = {n.split(f".h.{i}.")[1]: w for n, w in weights.items() if f".h.{i}." in n}
            h = functional.layer_norm(x, (width,), layer["ln_1.weight"], layer["ln_1.bias"])
            qkv = h @ layer["attn.c_attn.weight"] + layer["attn.c_attn.bias"]
            q, k, v = (part.view(length, heads, width // heads).transpose(0, 1)
                       for part in qkv.split(width, dim=-1))
            scores = q @ k.transpose(1, 2) / (width // heads) ** 0.5
            attended = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
            attended = attended.transpose(0, 1).reshape(length, width)
            x = x + attended @ layer["attn.c_proj.weight"] + layer["attn.c_proj.bias"]
            h = functional.layer_norm(x, (width,), layer["ln_2.weight"], layer["ln_2.bias"])
            h = functional.gelu(h @ layer["mlp.c_fc.weight"] + layer["mlp.c_fc.bias"],
                                approximate="tanh")
            x = x + h @ layer["mlp.c_proj.weight"] + layer["mlp.c_proj.bias"]
        if "lm_head.weight" in weights:
            x = functional.layer_norm(x, (width,), weights["transformer.ln_f.weight"],
                                      weights["transformer.ln_f.bias"])
            x = x @ weights["lm_head.weight"].T
        return x

    def forward(self, place, x):
        self.saved[place] = self.weights, x, self.version
        with torch.no_grad():
            return self.run(self.weights, x)

    def backward(self, place, gradient, targets, scale):
        """The gradient of the input; `gradient` is that of the output, none of a stage with a head."""
        seen, x, version = self.saved.pop(place)
        self.delay = max(self.delay, self.version - version)
        weights = {name: w.detach().requires_grad_() for name, w in seen.items()}
        if x.is_floating_point():
            x = x.detach().requires_grad_()
        out = self.run(weights, x)
        if gradient is None:
            out = torch.nn.functional.cross_entropy(out, targets, reduction="sum") * scale
        out.backward(gradient)
        for name, w in weights.items():
            self.gradients[name] = self.gradients.get(name, 0) + w.grad
        return x.grad

    def update(self, rate, their_norm):
        norm = sum(g.pow(2).sum() for g in self.gradients.values()).sqrt().item()
        self.norms.append((norm, their_norm))
        factor = min(1.0, self.max_norm / norm)
        for name, g in self.gradients.items():
            self.momenta[name] = MOMENTUM * self.momenta.get(name, 0) + factor * g
        self.weights = {name: w - rate * self.momenta[name] for name, w in self.weights.items()}
        if self.addend:
            self.weights = {n: w + self.addend[n] for n, w in self.weights.items()}
        self.gradients, self.addend = {}, None
        self.version += 1

    def give(self, kind):
        given = dict(self.weights)
        if self.addend:
            given = {n: w + self.addend[n] for n, w in given.items()}
        if kind != "nonblocking":
            self.addend = None
        return given, {n: self.momenta.get(n, torch.zeros_like(w)) for n, w in given.items()}

    def take(self, kind, own, members):
        def mean(part):
            return {n: sum(weight * given[part][n] for weight, given in members) for n in own[0]}
        if kind == "nonblocking":
            gain = {n: w - own[0][n] for n, w in mean(0).items()}
            before = self.addend or {n: 0 for n in gain}
            self.addend = {n: before[n] + gain[n] for n in gain}
            return
        self.weights = mean(0)
        if kind == "global":
            self.momenta = mean(1)


class Replay:
    """What the lines of asynchronous_trainer say, in float64."""

    def __init__(self, lines):
        self.replicas, self.tokens, self.given = {}, {}, {}
        self.inputs, self.gradients = {}, {}
        self.worst = 0.0
        self.counts = {}
        for line in lines:
            what, *words = line.split()
            self.counts[what] = self.counts.get(what, 0) + 1
            getattr(self, "on_" + what)(words)

    def on_model(self, words):
        (self.width, self.heads, self.vocabulary, self.positions, _, self.stages, self.pipelines,
         self.microbatches) = map(int, words[:-1])
        self.clips_by_share = words[-1] == "share"

    def shape_of(self, name, count):
        if count % self.width or name.endswith("bias") or "ln_" in name:
            return (count,)
        if "wte" in name or "wpe" in name or "lm_head" in name:
            return (count // self.width, self.width)
        rows = 4 * self.width if name.endswith("mlp.c_proj.weight") else self.width
        return (rows, count // rows)

    def on_tensor(self, words):
        replica = self.replicas.setdefault(int(words[0]), Replica(self.heads))
        values = torch.tensor([float(word) for word in words[2:]], dtype=torch.float64)
        values = values.view(self.shape_of(words[1], len(values)))
        if "update" not in self.counts:
            replica.weights[words[1]] = values
            return
        ours = replica.weights[words[1]]
        self.worst = max(self.worst, ((ours - values).norm() / ours.norm()).item())

    def on_tokens(self, words):
        self.tokens[int(words[0])] = torch.tensor([int(word) for word in words[1:]])

    def on_forward(self, words):
        replica, *place, sample = map(int, words)
        stage, here = replica // self.pipelines, (replica, *place)
        x = self.tokens[sample][:-1] if stage == 0 else self.inputs.pop(here)
        out = self.replicas[replica].forward(tuple(place), x)
        if stage + 1 < self.stages:
            self.inputs[(replica + self.pipelines, *place)] = out

    def on_backward(self, words):
        replica, *place, sample = map(int, words)
        targets = self.tokens[sample][1:]
        scale = 1.0 / (self.microbatches * len(targets))
        gradient = self.gradients.pop((replica, *place), None)
        out = self.replicas[replica].backward(tuple(place), gradient, targets, scale)
        if out is not None:
            self.gradients[(replica - self.pipelines, *place)] = out

    def on_update(self, words):
        if self.counts["update"] == 1 and self.clips_by_share:
            self.share_the_norm()
        self.replicas[int(words[0])].update(float(words[1]), float(words[2]))

    def on_give(self, words):
        self.given[(int(words[1]), int(words[0]))] = self.replicas[int(words[0])].give(words[2])

    def on_take(self, words):
        replica, group, kind = int(words[0]), int(words[1]), words[2]
        members = []
        for word in words[3:]:
            member, weight = word.split(":")
            members.append((float(weight), self.given[(group, int(member))]))
        self.replicas[replica].take(kind, self.given[(group, replica)], members)

    def share_the_norm(self):
        """With all stages of a pipeline replica at their limits, its gradient is at the limit of all."""
        counts = {id: sum(w.numel() for w in r.weights.values()) for id, r in self.replicas.items()}
        for id, replica in self.replicas.items():
            of_all = sum(n for other, n in counts.items() if other % self.pipelines == id % self.pipelines)
            replica.max_norm = MAX_NORM * (counts[id] / of_all) ** 0.5

    def clipped(self):
        """The share of updates whose gradient is above its limit."""
        above = [norm > r.max_norm for r in self.replicas.values() for norm, _ in r.norms]
        return sum(above) / len(above)

    def worst_norm(self):
        return max(abs(a - b) / b for r in self.replicas.values() for a, b in r.norms)

    def delays(self):
        """The most updates between a forward and its backward, by stage."""
        return [max(r.delay for i, r in self.replicas.items() if i // self.pipelines == stage)
                for stage in range(self.stages)]


def old_versions(stages, stage, microbatches, claims):
    """At most so many updates fall between a forward and its backward (plans/schedule)."""
    ahead = min(stages - stage, claims * microbatches)
    return min(-(-(ahead - 1) // microbatches), claims - 1)


def check(program, trainer, shape, policy, seed, clip_by="stage"):
    stages, pipelines, claims = shape
    words = [trainer, *map(str, (stages, pipelines, claims, seed)), policy, clip_by]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    name = f"{policy}, {stages} stages, {pipelines} pipeline replicas, {claims} claims, clipped by {clip_by}"
    if run.returncode != 0:
        program.expect(f"{name}: it trains", False, run.stdout[-400:])
        return
    replay = Replay(run.stdout.splitlines())
    most = [old_versions(stages, s, replay.microbatches, claims) for s in range(stages)]
    delays = replay.delays()
    detail = (f"weights {replay.worst:.1e}, gradients {replay.worst_norm():.1e}, "
              f"delays {delays}, {replay.counts['update']} updates")
    program.expect(f"{name}: as in float64", max(replay.worst, replay.worst_norm()) < TOLERANCE,
                   detail)
    fits = all(delay <= bound for delay, bound in zip(delays, most))
    is_late = claims == 1 or delays[0] > 0
    program.expect(f"{name}: weights are as old as planned", fits and is_late, f"{delays} of {most}")
    program.expect(f"{name}: gradients are clipped", replay.clipped() > 0.2, f"{replay.clipped():.0%}")
    print(f"      {detail}", flush=True)


def main():
    torch.set_num_threads(1)
    program = Program()
    for number, shape in enumerate(SHAPES if LONG else SHAPES[:SHORT]):
        for policy in PEERS:
            check(program, sys.argv[2], shape, policy, FIRST_SEED + number)
        if shape[2] > 1:
            check(program, sys.argv[2], shape, "sdpipe", FIRST_SEED + number, "share")
    program.finish()


main()
