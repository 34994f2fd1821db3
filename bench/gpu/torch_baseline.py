#!/usr/bin/env python3
"""PyTorch beside `cuda_speed`: the same models, shapes, steps and formulas, on one GPU.

    python3 bench/gpu/torch_baseline.py [--quick] [--device cuda|cpu] [--no-compile] [--models small,1b]
                                        [--attention]

Each model is a GPT-2 of tied head with learned positions and biases: GPT-2's smallest, with 50,304 and with
50,257 symbols, and one of about 1,000 M parameters. A step is forward, backward, clipping by the norm of all
gradients, and AdamW, in bfloat16 by autocast over float32 weights, as ours has them: torch.compile of the
model with its loss, attention by scaled_dot_product_attention, fused AdamW. Prints the lines that `cuda_speed`
prints; the median of the steps behind the first ones counts. --attention times scaled_dot_product_attention with
each of its back ends over ever longer sequences instead. --quick takes small sizes. Exit code 77 without
PyTorch or the device.
"""
import argparse
import resource
import statistics
import sys
import time

STEPS, WARM_UPS = 12, 4

# batch, T, C, heads, layers, V: as in cuda_speed.cpp.
MODELS = {
    "small": [(batch, 1024, 768, 12, 12, vocabulary)
              for batch, vocabulary in ((16, 50304), (4, 50257), (16, 50257), (64, 50257))],
    "1b": [(8, 1024, 1792, 28, 24, 50304)],
}
QUICK = [(1, 32, 32, 2, 1, 256), (1, 32, 32, 2, 1, 209)]


def make_model(torch, sizes):
    _, seq_len, width, heads, layers, vocabulary = sizes
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(c, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(seq_len, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.blocks(self.wte(tokens) + self.wpe.weight)
            logits = functional.linear(self.norm(x), self.wte.weight)
            return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Model()


def measure(torch, sizes, options):
    batch, seq_len, width, _, layers, vocabulary = sizes
    is_cuda = options.device == "cuda"
    torch.manual_seed(5)
    model = make_model(torch, sizes).to(options.device)
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, targets = torch.randint(vocabulary, (2, batch, seq_len), device=options.device)
    loss_of = torch.compile(model) if options.compile else model

    def step():
        with torch.autocast(options.device, torch.bfloat16):
            loss = loss_of(tokens, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()  # The host waits for both, as ours does.

    rounds = []
    for i in range(STEPS):
        start = time.perf_counter()
        loss, norm = step()
        rounds.append(time.perf_counter() - start)
        print(f"step {i}: loss {loss:.4f}, gradient norm squared {norm * norm:.4f}, "
              f"{rounds[-1] * 1e3:.1f} ms", flush=True)
    seconds = statistics.median(rounds[WARM_UPS:])
    n = batch * seq_len
    flops = 6 * parameters * n + 6 * n * layers * width * seq_len
    device = torch.cuda.get_device_name() if is_cuda else ""
    fastest = 989e12 if "H200" in device or "H100 80GB HBM3" in device else 312e12 if "A100" in device else 0
    mfu = 100 * flops / seconds / fastest if fastest else 0  # The datasheets give dense bfloat16.
    if is_cuda:
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"GPT-2 of {parameters / 1e6:.0f} M parameters, V {vocabulary}, {batch} x {seq_len} tokens: "
          f"{n / seconds:.0f} tokens/s, {flops / seconds / 1e12:.0f} TFLOP/s, MFU {mfu:.1f} %, {peak / 1e9:.1f} GB; steps of "
          f"{min(rounds[WARM_UPS:]) * 1e3:.2f} to {max(rounds[WARM_UPS:]) * 1e3:.2f} ms",
          flush=True)


def measure_attention(torch):
    """The same tokens in ever fewer and longer sequences; q, k and v lie side by side, as ours do."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, seq_len, width, heads = 16, 1024, 768, 12
    for length in (seq_len, 4 * seq_len, 16 * seq_len):
        samples = batch * seq_len // length
        qkv = torch.randn(samples, length, 3, heads, width // heads, device="cuda", dtype=torch.bfloat16,
                          requires_grad=True)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        dout = torch.randn(samples, length, heads, width // heads, device="cuda",
                           dtype=torch.bfloat16).transpose(1, 2)
        flops = 2 * batch * seq_len * width * length
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            try:
                with sdpa_kernel(backend):
                    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                    forward = time_of(torch, lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True))
                    backward = time_of(torch, lambda out=out: torch.autograd.grad(
                        out, (q, k, v), dout, retain_graph=True))
            except RuntimeError as error:
                print(f"SDPA, {backend.name}, T {length}: {str(error).splitlines()[0]}", flush=True)
                continue
            print(f"SDPA, {backend.name}, T {length}: {forward * 1e6:.1f} us, {flops / forward / 1e12:.0f} TF/s; "
                  f"backward {backward * 1e6:.1f} us, {2.5 * flops / backward / 1e12:.0f} TF/s", flush=True)


def time_of(torch, call, repeats=20, rounds=5):
    call()
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / repeats)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--models", default="small,1b", help="small, 1b, or both with a comma")
    parser.add_argument("--attention", action="store_true")
    options = parser.parse_args()
    names = options.models.split(",")
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"there is no model {unknown[0]}; use {' or '.join(MODELS)}")
    try:
        import torch
    except ImportError as error:
        print(f"no PyTorch: {error}")
        return 77
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return 77
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    how = "compiled" if options.compile else "eager"
    print(f"PyTorch {torch.__version__}, {name}, bfloat16, {how}", flush=True)
    if options.attention:
        measure_attention(torch)
        return 0
    for sizes in QUICK if options.quick else [size for key in names for size in MODELS[key]]:
        measure(torch, sizes, options)
        if options.device == "cuda":
            torch.cuda.empty_cache()
        if options.compile:
            torch.compiler.reset()
    return 0


if __name__ == "__main__":
    sys.exit(main())
