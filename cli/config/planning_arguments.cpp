#include "cli/config/planning_arguments.hpp"

#include <set>
#include <string>

#include <CLI/CLI.hpp>

namespace skein::cli {
namespace {

constexpr const char* kPlanFooter =
    R"(Prints which layers, rows and micro-batches each device gets and why, what a step is
predicted to take, and how other planners' plans compare. All plans are judged by the same
simulation. Without a profile, times are estimated from the model's operations, and marked so. With
one, the job may be left out: any model can be planned for.

Examples:
  skein plan job.toml cluster.toml
  skein plan job.toml cluster.toml --profile profile.json --show --html plan.html
  skein plan cluster.toml --profile vgg16.json --batch 2048 --microbatch-rows 64
  skein plan job.toml cluster.toml --schedules 1F1B,ZBH1 --microbatch-rows 1,2,4,8
  skein plan job.toml cluster.toml --json --out plan.txt --csv schedule.csv
  skein plan job.toml cluster.toml --parallelism.plans_of_others false
  skein plan job.toml cluster.toml --html compare.html --measured outputs/latest

docs/cluster.md and docs/profile.md say what is in the files.
Exit codes: 0 planned, 2 bad file or argument, or no plan fits the memory.)";

constexpr const char* kSimulateFooter =
    R"(With files, does everything that `skein train` would do but the computation, and leaves
the same run folder. With numbers only, prints what a schedule looks like: --tf is a rank's
time for the forward of one micro-batch, --tb for the backward; with --tw, --tb is the backward of
the inputs only and --tw that of the weights, as zero-bubble papers count. --tc is a transfer
between neighbours.

Examples:
  skein simulate job.toml cluster.toml --steps 20
  skein simulate cluster.toml --profile vgg16.json --steps 20
  skein simulate job.toml cluster.toml --plan plan.txt --scenario 'H2 factor=4 devices=0'
  skein simulate job.toml cluster.toml --churn g4dn-trace.csv --churn-scale 60
  skein simulate job.toml cluster.toml --beside other.toml --steps 40
  skein simulate --stages 4 --microbatches 8 --tf 1 --tb 2
  skein simulate --stages 4 --microbatches 12 --tf 1 --tb 1 --tw 1 --schedule ZBH1 --svg zb.svg
  skein simulate --stages 4 --microbatches 8 --virtual 2 --schedule Interleaved1F1B
  skein simulate --schedule-csv schedule.csv --tf 1 --tb 2

Exit codes: 0 simulated, 2 bad file or argument, or the plan does not fit the memory.)";

constexpr const char* kNumbersGroup = "Without files";

void add_planning(CLI::App& verb, PlanningOptions& options) {
  verb.add_option("job", options.job_path, "job file (TOML); left out, --profile is the model");
  verb.add_option("cluster", options.cluster_path, "cluster file (TOML)");
  verb.add_option("--profile", options.profile_path,
                  "what the layers cost (JSON); default: an estimate");
  verb.add_option("--estimate-gflops", options.estimate_gflops,
                  "without a profile: GFLOP/s of a device of speed 1.0")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e9));
  verb.add_option("--estimate-gbytes", options.estimate_gbytes,
                  "without a profile: GB/s of its memory")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e9));
  verb.add_option("--planner", options.planner, "whose plan is taken")->capture_default_str();
  verb.add_option("--schedules", options.schedules,
                  "schedules that may be chosen; default: the job's, or 1F1B")
      ->delimiter(',');
  verb.add_option(
          "--microbatch-rows", options.microbatch_rows,
          "samples of a micro-batch that may be chosen; default: the job's, or the profile's")
      ->delimiter(',');
  verb.add_option("--batch", options.batch,
                  "samples of one step; default: the job's, or four micro-batches for each device")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  verb.add_flag("--may-recompute", options.may_recompute,
                "recomputation may be chosen where memory is short");
  verb.add_option("--scenario", options.scenario,
                  "how devices are slowed, as 'H2 factor=4 devices=0'");
  verb.add_option("--schedule-csv", options.schedule_csv,
                  "use the schedule of this file (PyTorch's format)");
}

void add_files(CLI::App& verb, PictureFiles& files) {
  verb.add_option("--svg", files.svg, "draw one step into this file");
  verb.add_option("--html", files.html, "write a report into this file");
  verb.add_option("--measured", files.measured,
                  "run folder whose measured timeline the report shows, too");
  verb.add_option("--csv", files.csv, "write the schedule into this file (PyTorch's format)");
}

void add_churn(CLI::App& verb, ChurnArguments& churn) {
  const char* group = "Members that come and go";
  const auto seconds = CLI::Range(0.0, 1e9);
  auto add = [&](const char* name, auto& value, const char* what) {
    return verb.add_option(name, value, what)->group(group);
  };
  add("--churn", churn.trace_path, "recorded machines: lines of milliseconds,add|remove,machine");
  add("--churn-scale", churn.options.scale, "how many times faster the recording runs")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6));
  add("--churn-notice", churn.options.notice_s,
      "seconds of the recording by which a notice precedes a loss")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-from", churn.options.from_s,
      "second of the recording at which to begin; default: when a machine first comes")
      ->check(seconds);
  add("--churn-length", churn.options.length_s,
      "seconds of the recording; default: to its last event")
      ->check(seconds);
  add("--churn-templates", churn.template_stages, "stages of whole pipelines to compare with")
      ->delimiter(',')
      ->capture_default_str();
  add("--churn-change", churn.costs.change_s, "seconds of a change of plan, beside moving state")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-join", churn.costs.join_s, "seconds until a newcomer has joined")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-measure", churn.costs.measure_s,
      "seconds in which it measures its device, for the planner; one on each host at a time")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-planning", churn.costs.planning_s, "seconds of the planner")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-restart", churn.costs.restart_s, "seconds of a restart, of who stops and restarts")
      ->capture_default_str()
      ->check(seconds);
  add("--churn-checkpoint", churn.costs.checkpoint_steps,
      "steps between checkpoints of the same; default: the job's")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  add("--churn-chaos", churn.chaos_path, "write the fault script of a real run into this file");
}

/// Flags of `skein simulate` that mean nothing for a schedule in numbers alone.
const std::set<std::string>& flags_of_files() {
  static const std::set<std::string> flags = {
      "--estimate-gflops", "--estimate-gbytes", "--planner",    "--schedules", "--microbatch-rows",
      "--batch",           "--may-recompute",   "--scenario",   "--plan",      "--steps",
      "--log-format",      "--beside",          "--beside-plan"};
  return flags;
}

/// Which flags were given that only one of simulate's forms takes.
void sort_flags(const CLI::App& verb, SimulateOptions& options) {
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (option->get_group() == kNumbersGroup) options.flags_of_numbers.push_back(name);
    if (flags_of_files().contains(name)) options.flags_of_files.push_back(name);
  }
}

}  // namespace

CLI::App* add_plan_verb(CLI::App& app, PlanOptions& options) {
  CLI::App* verb = app.add_subcommand("plan", "decide which device computes what, and say why");
  verb->footer(kPlanFooter);
  add_planning(*verb, options.planning);
  add_files(*verb, options.files);
  verb->add_option("--out", options.out, "write the plan as text into this file");
  verb->add_flag("--json", options.json, "print JSON");
  verb->add_flag("--show", options.shows, "print one step as a grid, too");
  return verb;
}

CLI::App* add_simulate_verb(CLI::App& app, SimulateOptions& options) {
  CLI::App* verb =
      app.add_subcommand("simulate", "run a job, or just a schedule, without computing anything");
  verb->footer(kSimulateFooter);
  add_planning(*verb, options.planning);
  add_files(*verb, options.files);
  verb->add_option("--plan", options.plan_path, "plan.txt to simulate; default: plan first");
  verb->add_option("--steps", options.steps, "steps to simulate")->capture_default_str();
  verb->add_flag("--quiet", options.quiet, "print only the summary");
  verb->add_option_function<std::string>(
          "--log-format",
          [&options](const std::string& format) {
            options.format = format == "json" ? LogFormat::kJson : LogFormat::kText;
          },
          "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}));
  verb->add_option("--beside", options.shared.beside,
                   "another job file: both share the cluster's devices (docs/sharing.md); several "
                   "times for several jobs, and for which of them pair well")
      ->allow_extra_args(false);
  verb->add_option("--beside-plan", options.shared.plans,
                   "plan.txt of a job beside; default: plan first")
      ->allow_extra_args(false);
  add_churn(*verb, options.churn);
  QuickOptions& quick = options.quick;
  const char* group = kNumbersGroup;
  verb->add_option("--stages", quick.stages, "ranks of the pipeline")->group(group);
  verb->add_option("--microbatches", quick.microbatches, "of one step")->group(group);
  verb->add_option("--tf", quick.forward, "time of a forward")->capture_default_str()->group(group);
  verb->add_option("--tb", quick.backward, "time of a backward")
      ->capture_default_str()
      ->group(group);
  verb->add_option("--tw", quick.weight, "of it for the weights, apart from --tb")->group(group);
  verb->add_option("--tc", quick.transfer, "time of a transfer")->group(group);
  verb->add_option("--schedule", quick.schedule, "schedule")->capture_default_str()->group(group);
  verb->add_option("--virtual", quick.virtual_stages, "stages of each rank, which share its times")
      ->capture_default_str()
      ->group(group);
  verb->callback([verb, &options] { sort_flags(*verb, options); });
  return verb;
}

}  // namespace skein::cli
