"""PyTorch's AdamW as tests/support/small_job.toml has it: clipping, schedule and which weights decay."""
import math

import torch

RATE, WARMUP, LEAST = 1e-3, 10, 0.1
DECAY, NORM_MAX = 0.1, 1.0


class SmallJobOptimizer:
    """Over all parameters of a model, for a job of `steps`; `peak`: the largest rate."""

    def __init__(self, parameters, steps, peak=RATE):
        self.parameters, self.steps, self.peak, self.steps_done = list(parameters), steps, peak, 0
        self.adamw = torch.optim.AdamW(
            [{"params": [w for w in self.parameters if w.dim() > 1], "weight_decay": DECAY},
             {"params": [w for w in self.parameters if w.dim() == 1], "weight_decay": 0.0}],
            lr=peak, betas=(0.9, 0.95), eps=1e-8)

    def rate(self):
        if self.steps_done < WARMUP:
            return self.peak * (self.steps_done + 1) / WARMUP
        progress = (self.steps_done - WARMUP) / (self.steps - WARMUP)
        return self.peak * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * progress)))

    def zero_grad(self):
        self.adamw.zero_grad()

    def step(self):
        # As torch.nn.utils.clip_grad_norm_ but for its 1e-6 beside the norm.
        norm = torch.sqrt(sum((w.grad.double() ** 2).sum() for w in self.parameters)).item()
        for weight in self.parameters:
            weight.grad *= min(1.0, NORM_MAX / norm)
        for group in self.adamw.param_groups:
            group["lr"] = self.rate()
        self.adamw.step()
        self.steps_done += 1
