#include "cli/config/verb_arguments.hpp"

#include <CLI/CLI.hpp>

#include "cli/verbs/compare_verb.hpp"
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
