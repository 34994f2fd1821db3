"""A model of transformers is trained on with text of one's own, by three workers of whom one dies and another
comes, as PyTorch trains it; then text comes out of it, as out of the library.

    cmake/install-python-packages.sh transformers
    python3 tests/oracle/finetuning.py build/release/skein build/release/tests/oracle/reference_trainer

The tokenizer is trained here. Versions 4 and 5 of transformers will do."""
import glob
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import pypi  # noqa: E402

pypi.need("tokenizers", "torch", "transformers")
import numpy  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from checkpoints import newest  # noqa: E402
from elastic_runs import ElasticRun  # noqa: E402
from running import Program, SOURCE  # noqa: E402
from small_job_optimizer import SmallJobOptimizer  # noqa: E402

STEPS, SEQ_LEN, GLOBAL_BATCH = 20, 32, 16  # As the small job has them.
LEARNED, LEARNING_RATE = 250, 5e-3  # Steps before, on another text.
VOCABULARY, END = 512, "<|endoftext|>"
TOLERANCE = 1e-3
PROMPT, DRAWN = "The run goes on", 16  # Together shorter than a sample.


def learn(model, batches, *peak):
    """The losses of a step for each of the batches, which are tokens and the one behind them."""
    optimizer = SmallJobOptimizer(model.parameters(), len(batches), *peak)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_base(program):
    """What one would download: a GPT-2 with its tokenizer, that has learned a little of another text."""
    folder, texts = os.path.join(program.folder, "base"), glob.glob(os.path.join(SOURCE, "docs", "*.md"))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)
    torch.manual_seed(1)
    end = tokenizer.token_to_id(END)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=64, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=end, eos_token_id=end))
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        windows = torch.tensor(tokenizer.encode(file.read()).ids).unfold(0, SEQ_LEN + 1, 1)
    learn(model, windows[torch.randint(len(windows), (LEARNED, GLOBAL_BATCH))], LEARNING_RATE)
    model.save_pretrained(folder)
    return folder


def prepare(program, base):
    tool = os.path.join(SOURCE, "tools", "skein-prepare")
    made = subprocess.run([sys.executable, tool, "prepared", os.path.join(SOURCE, "docs"), "--tokenizer", base],
                          cwd=program.folder, text=True, capture_output=True, check=False)
    program.expect("text becomes tokens", made.returncode == 0, made.stdout.strip() + made.stderr.strip())
    manifest = os.path.join(program.folder, "prepared", "manifest.json")
    return ["--data.dataset", "tokens", "--data.path", manifest, "--model.vocab_size", str(VOCABULARY)]


def train(program, words):
    """Three stages; the worker of one dies, and another comes."""
    run = ElasticRun(program, "finetuned", 3, *words, "--parallelism.pipeline_parallel_degree", "3",
                     "--device.speed", "0.05", apart=True)
    run.wait_for_step(4)
    run.signal(2)
    run.wait_for_step(8)
    run.join()
    program.expect("a run that loses a worker and gets another one ends", run.finish() == 0, run.errors()[-300:])
    plans = [row[0] for row in run.journal("SELECT plan FROM plans")]
    program.expect("the newcomer had a part", any("@w4" in plan for plan in plans), len(plans))
    return run.folder(), list({line["step"]: line["loss"] for line in run.steps()}.values())


def train_with_pytorch(program, base, words):
    folder = program.run_reference("samples", *words)
    batches = numpy.fromfile(os.path.join(folder, "batches.bin"), dtype=numpy.int32).astype(numpy.int64)
    batches = torch.tensor(batches.reshape(STEPS, GLOBAL_BATCH, SEQ_LEN + 1))
    return learn(transformers.GPT2LMHeadModel.from_pretrained(base).train(), batches)


def text_of_library(folder):
    """Greedy, behind the prompt."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
    drawn = model.generate(**tokens, max_new_tokens=DRAWN, do_sample=False)
    return tokenizer.decode(drawn[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    program = Program()
    base = make_base(program)
    words = prepare(program, base)
    run, ours = train(program, ["--model.from", base, *words])
    theirs = train_with_pytorch(program, base, words)
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    program.expect(f"{STEPS} losses are PyTorch's within {TOLERANCE}",
                   len(ours) == len(theirs) == STEPS and worst <= TOLERANCE,
                   f"worst {worst:.1e}, from {theirs[0]:.3f} to {theirs[-1]:.3f}")
    exported = os.path.join(program.folder, "exported")
    program.expect("it is exported", program.run("export", run, exported).returncode == 0)
    expected = text_of_library(exported)
    for source in (run, newest(run), exported):
        drawn = program.run("generate", source, "--prompt", PROMPT, "--tokens", str(DRAWN), "--temperature", "0")
        program.expect("greedy text is the library's", drawn.stdout == expected + "\n",
                       f"{drawn.stdout!r} {expected!r} {drawn.stderr}")
    program.finish()


main()
