#include "cli/config/verb_arguments.hpp"

#include <CLI/CLI.hpp>

#include "cli/verbs/compare_verb.hpp"
#include "cli/verbs/eval_verb.hpp"
#include "cli/verbs/generate.hpp"
#include "cli/verbs/profile_verb.hpp"
#include "cli/verbs/worker_verb.hpp"

namespace skein::cli {
namespace {

constexpr const char* kCompareFooter =
    R"(The experiment file says which job is run, in which variants, scenarios and seeds:

  [compare]
  base = "job.toml"           # what all runs share
  workers = 4
  seeds = [1, 2, 3, 4, 5]
  target = 2.5                # validation loss whose time is measured
  scenarios = ["H0", "H2"]    # docs/heterogeneity.md

  [variants.baseline]         # the first one: the others are shown in relation to it
  [variants.one-bucket]
  "comm.bucket_cap_mb" = 0

Examples:
  skein compare examples/compare.toml
  skein compare examples/compare.toml --folder /tmp/results --fresh

Stopped by Ctrl-C, the same command goes on where it was. docs/compare.md says more.)";

constexpr const char* kEvalFooter =
    R"(The data are what the checkpoint's run holds out for validation, or those that keys of [data]
name. With --data.path all of the file is judged, or of a manifest what it lists for validation if
it lists any; with --data.mixture what is held out of each source. Windows lie one behind the
other, and each token is predicted from those before it in its window. Bits per byte are there
where it is known how many bytes of text the tokens stand for.

Examples:
  skein eval outputs/latest
  skein eval outputs/latest --data.dataset text --data.path other.txt
  skein eval ~/gpt2 --data.dataset tokens --data.path wiki.bin --seq-len 1024 --json

It computes on the processor, in the memory that training would take: four times that of the
weights as float32, and more for --batch windows of --seq-len tokens.)";

constexpr const char* kGenerateFooter =
    R"(With several --devices each has some of the layers, as evenly as memory allows, and the
positions pass through all of them: a model that fits no one of them is drawn from. They are

  cpu       host threads
  cuda:0    a GPU, counted as CUDA_VISIBLE_DEVICES leaves them
  cuda      all GPUs, from the first on
  auto      all GPUs, or the processor if there is none

Examples:
  skein generate outputs/latest --prompt "Once" --top-p 0.9
  skein generate ~/llama --prompt "Once" --devices cuda:0,cuda:1,cpu
  skein generate ~/llama --prompt "Once" --listen 127.0.0.1:29400 --workers 2

With --listen the layers are on workers, other processes that join with skein worker --join, and
see the model's folder under the same path. docs/text.md says more.)";

constexpr const char* kProfileFooter =
    R"(Times the forward, the backward of the inputs and the backward of the weights of every
layer at several numbers of rows of a micro-batch, and bandwidth and latency between the workers,
as tensors take them. The files are for `skein plan` and may be changed by hand.

Examples:
  skein profile job.toml --workers 4
  skein profile job.toml --workers 3 --device.speeds 1,0.5,0.25 --profile-out p.json
  skein plan job.toml cluster.toml --profile profile.json

docs/profile.md and docs/cluster.md say what is in the files.)";

}  // namespace

CLI::App* add_compare_verb(CLI::App& app, CompareOptions& options) {
  CLI::App* verb = app.add_subcommand(
      "compare", "train variants of a job in several scenarios, and show which is first");
  verb->footer(kCompareFooter);
  verb->add_option("experiment", options.path, "experiment file (TOML)")->required();
  verb->add_option("--folder", options.folder, "where all is written; default: compare.folder");
  verb->add_flag("--fresh", options.fresh, "make runs again that are done");
  return verb;
}

CLI::App* add_eval_verb(CLI::App& app, EvalOptions& options) {
  CLI::App* verb =
      app.add_subcommand("eval", "measure how well a checkpoint predicts data: loss, perplexity");
  verb->footer(kEvalFooter);
  verb->add_option("checkpoint", options.checkpoint,
                   "checkpoint, run folder or folder in Hugging Face's form")
      ->required();
  verb->add_option(
          "--seq-len", options.seq_len,
          "tokens of a window; 0: as many as in training here, else the model's positions, at "
          "most 1024")
      ->capture_default_str();
  verb->add_option("--batch", options.batch, "windows that are computed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  verb->add_option("--windows", options.windows, "only the first so many windows; 0: all")
      ->capture_default_str();
  verb->add_option("--threads", options.threads, "host threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--json", options.as_json, "print JSON");
  return verb;
}

CLI::App* add_generate_verb(CLI::App& app, GenerateOptions& options) {
  CLI::App* verb = app.add_subcommand("generate", "draw text from a checkpoint");
  verb->footer(kGenerateFooter);
  verb->add_option("checkpoint", options.checkpoint,
                   "checkpoint, run folder or folder in Hugging Face's form")
      ->required();
  verb->add_option("--prompt", options.prompt, "text to go on from");
  verb->add_option("--tokens", options.tokens, "number of tokens to draw")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kTokensMax));
  verb->add_option("--temperature", options.sampling.temperature,
                   "divides the logits; 0: always the likeliest token")
      ->capture_default_str();
  verb->add_option("--top-k", options.sampling.top_k,
                   "draw among the K likeliest tokens; 0: among all")
      ->capture_default_str();
  verb->add_option(
          "--top-p", options.sampling.top_p,
          "draw among the likeliest tokens that together have probability P, after --top-k")
      ->capture_default_str();
  verb->add_flag("!--ignore-eos", options.stops, "go on behind the model's end token");
  verb->add_flag("--ids", options.is_numbers, "the prompt and what is written are token numbers");
  verb->add_option("--seed", options.seed, "seed of the draws")->capture_default_str();
  verb->add_option("--devices", options.devices.names,
                   "what computes, separated by commas: cpu, cuda:N, cuda; or auto")
      ->capture_default_str();
  verb->add_option("--threads", options.devices.threads, "host threads of each cpu")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verb->add_option("--precision", options.devices.precision,
                   "numbers on GPUs: bfloat16, tf32 or float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"bfloat16", "tf32", "float32"}));
  verb->add_option("--listen", options.workers.listen,
                   "host:port where workers join, which compute in place of --devices");
  verb->add_option("--workers", options.workers.count, "workers to wait for, with --listen")
      ->check(CLI::Range(1, 1000));
  verb->add_flag("--insecure", options.workers.insecure,
                 "allow a --listen address that is not loopback");
  return verb;
}

CLI::App* add_profile_verb(CLI::App& app, ProfileOptions& options) {
  CLI::App* verb = app.add_subcommand("profile", "measure layers and links for the planner");
  verb->footer(kProfileFooter);
  verb->add_option("job", options.training.job_path, "job file (TOML)")->required();
  verb->add_option("--workers", options.training.workers, "worker processes to measure")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--profile-out", options.profile_out, "file for the layers")
      ->capture_default_str();
  verb->add_option("--cluster-out", options.cluster_out, "file for devices and links")
      ->capture_default_str();
  return verb;
}

CLI::App* add_worker_verb(CLI::App& app, WorkerArguments& arguments) {
  CLI::App* verb = app.add_subcommand("worker", "join a job, or several, as a worker");
  verb->add_option("--join", arguments.join,
                   "the coordinator's host:port; once for each job that this worker is to serve")
      ->required()
      ->allow_extra_args(false);
  verb->add_option("--bind", arguments.bind,
                   "this machine's address, to which other workers connect; auto: the one on the "
                   "way to the coordinator")
      ->capture_default_str();
  verb->add_option("--device", arguments.device, "cpu, cuda, auto or sleep; default: the job's")
      ->check(CLI::IsMember({"cpu", "cuda", "auto", "sleep"}));
  verb->add_option("--ordinal", arguments.ordinal, "GPU; default: the job's")
      ->check(CLI::Range(0, 1023));
  verb->add_option("--local-rank", arguments.local_rank,
                   "number among the workers of this machine, which take its GPUs in turn")
      ->envname("LOCAL_RANK")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("--speed", arguments.speed, "emulated speed in (0, 1]")
      ->check(CLI::Range(1e-3, 1.0));
  verb->add_option("--threads", arguments.threads, "host threads")->check(CLI::Range(1, 1024));
  verb->add_flag("--insecure", arguments.insecure, "allow a --bind address that is not loopback");
  verb->add_option("--spot", arguments.spot,
                   "leave the run when this cloud is to take the machine back (docs/spot.md)")
      ->check(CLI::IsMember({"aws", "gcp", "azure", "auto", "none"}))
      ->capture_default_str();
  verb->add_option("--spot-url", arguments.spot_url, "the cloud's metadata service")
      ->capture_default_str();
  verb->add_option("--parent", arguments.parent)->group("");  // Only `train` gives it.
  return verb;
}

}  // namespace skein::cli
