#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "actors/fail_point.hpp"
#include "actors/printing/stderr_lines.hpp"
#include "cli/config/job_file.hpp"
#include "cli/config/job_keys.hpp"
#include "cli/config/planning_arguments.hpp"
#include "cli/config/resume_keys.hpp"
#include "cli/config/stray_keys.hpp"
#include "cli/config/verb_arguments.hpp"
#include "cli/demo/demo.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/run/signals.hpp"
#include "cli/run/standard_streams.hpp"
#include "cli/run/worker_children.hpp"
#include "cli/verbs/compare_verb.hpp"
#include "cli/verbs/drain_verb.hpp"
#include "cli/verbs/eval_verb.hpp"
#include "cli/verbs/export_verb.hpp"
#include "cli/verbs/generate.hpp"
#include "cli/verbs/profile_verb.hpp"
#include "cli/verbs/status.hpp"
#include "cli/verbs/train.hpp"
#include "cli/verbs/verify_verb.hpp"
#include "cli/verbs/worker_verb.hpp"
#include "cli/version.hpp"
#include "gpu/files/mapped_file.hpp"

namespace {

using namespace skein::cli;  // The program is the cli.
using skein::actors::finish_error_lines;
using skein::actors::print_error_line;

constexpr const char* kFooter = R"(Examples:
  skein demo
  skein train examples/quickstart.toml --workers 2
  skein train job.toml --training.steps 200 --parallelism.layout 4,2,2
  skein train --resume outputs/latest
  skein train a.toml b.toml --workers 4
  skein generate outputs/latest --prompt "In the beginning"
  skein eval outputs/latest
  skein verify outputs/latest
  skein export outputs/latest exported
  skein generate ~/gpt2 --prompt "In the beginning"
  skein config show job.toml --optimizer.lr 3e-4
  skein plan job.toml examples/cluster-unequal.toml --html plan.html
  skein compare examples/compare.toml
  skein simulate --stages 4 --microbatches 8 --tf 1 --tb 2

A checkpoint may also be a model's folder in Hugging Face's form (docs/weights.md).
Every key of the job file can be given as --section.key VALUE, or as SKEIN_SECTION_KEY in the
environment; `skein config keys` lists them.
Exit codes: 0 done, 2 bad arguments or job file, 3 bad data or checkpoint, 70 an internal error
(start it again), 75 stopped early with the state saved, 130 stopped with nothing saved or ended by
a second signal, 1 anything else.)";

/// What was asked for is in the output: a command whose output is lost has failed.
int finish(int code) {
  const absl::Status flushed = flush_standard_output();
  finish_error_lines(skein::actors::LinePrinter::kAtEnd);
  return code == kExitDone && !flushed.ok() ? report_error(flushed) : code;
}

int finish(const absl::Status& status) {
  return finish(status.ok() ? kExitDone : report_error(status));
}

int show_config(const std::string& path, const Overrides& overrides) {
  const auto job = load_job(path, overrides);
  if (!job.ok()) return report_error(job.status());
  tell_ignored(*job);
  std::fputs(to_toml(job->spec, &job->origins).c_str(), stdout);
  return kExitDone;
}

/// "skein config show"
std::string whole_name(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : absl::StrCat(whole_name(*app.get_parent()), " ", app.get_name());
}

/// Says which command was meant before CLI11 says that it does not know the word; `words` begins
/// with the command of `app`.
int check_verb(const CLI::App& app, std::span<const std::string> words) {
  if (words.empty() || words.front().starts_with("-")) return kExitDone;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  if (verbs.empty()) return kExitDone;
  if (std::find(verbs.begin(), verbs.end(), words.front()) != verbs.end()) {
    return check_verb(*app.get_subcommand(words.front()), words.subspan(1));
  }
  return report_error(absl::InvalidArgumentError(
      absl::StrCat("unknown command ", words.front(), suggestion(words.front(), verbs), "; ",
                   whole_name(app), " --help lists them")));
}

/// Moves the keys of [data] to `data`; returns the others.
Overrides take_data_keys(const Overrides& given, Overrides& data) {
  Overrides others;
  for (const auto& each : given) (each.first.starts_with("data.") ? data : others).push_back(each);
  return others;
}

/// The verb that was parsed, or `app` itself.
const CLI::App& innermost(const CLI::App& app) {
  for (const CLI::App* verb : app.get_subcommands()) return innermost(*verb);
  return app;
}

/// "--join", "--bind" ...
std::vector<std::string> options_of(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What CLI11 says of arguments that it cannot take, with the option that was meant.
int report_arguments(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kExitDone : kExitUsage;  // Help.
  const CLI::App& verb = innermost(app);
  const std::vector<std::string> known = options_of(verb);
  std::string meant;
  for (const std::string& word : verb.remaining()) {
    if (meant.empty() && word.starts_with("--")) {
      meant = suggestion(word.substr(0, word.find('=')), known);
    }
  }
  return report_error(absl::InvalidArgumentError(
      absl::StrCat(error.what(), meant, "; ", whole_name(verb), " --help lists what there is")));
}

absl::StatusOr<skein::actors::FailPointHandle> read_fail_point() {
  const char* text = std::getenv("SKEIN_FAIL_POINT");
  return text ? skein::actors::FailPoint::parse(text) : nullptr;
}

/// What `train` runs: job files, or run folders to go on in.
struct TrainedJobs {
  std::vector<std::string> jobs;
  std::vector<std::string> resumed;
};

void add_train_options(CLI::App& verb, TrainedJobs& trained, TrainOptions& options, bool& as_json) {
  const bool takes_several = verb.get_name() == "train";
  verb.add_option("job", trained.jobs,
                  takes_several ? "job file (TOML); several run at once, on the same workers "
                                  "(docs/sharing.md)"
                                : "job file (TOML)");
  verb.add_option("--workers", options.workers, "workers; default: what the job's layout needs")
      ->check(CLI::Range(1, 100000));
  auto* resume =
      verb.add_option("--resume", trained.resumed,
                      absl::StrCat("run folder: go on in it from its latest checkpoint, instead of "
                                   "a job file",
                                   takes_several ? "; of several runs once for each" : ""))
          ->allow_extra_args(false);
  verb.add_flag("--resume-latest", options.resumes_latest,
                "go on with the job's latest run in job.dump_folder; start the job file if there "
                "is none; do nothing if it is done")
      ->excludes(resume);
  verb.add_option(
      "--chaos", options.chaos,
      "faults to be done to the run: 'w2:kill@30s;w3:pause=5s@step=40' (docs/chaos.md)");
  verb.add_option_function<std::string>(
          "--log-format", [&as_json](const std::string& format) { as_json = format == "json"; },
          "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}));
  verb.add_flag("--quiet", options.quiet, "print only the summary");
}

/// One of several.
TrainOptions with_label(TrainOptions options) {
  const std::string path = options.job_path.empty() ? options.resume : options.job_path;
  const std::filesystem::path trimmed(std::string(absl::StripSuffix(path, "/")));
  options.label = absl::StrCat(trimmed.stem().string(), ": ");
  return options;
}

int run_jobs(const TrainedJobs& trained, const TrainOptions& shared, Signals& signals) {
  std::vector<TrainOptions> all;
  for (const std::string& job : trained.jobs) {
    all.push_back(shared);
    all.back().job_path = job;
  }
  for (const std::string& folder : trained.resumed) {
    all.push_back(shared);
    all.back().resume = folder;
  }
  if (trained.jobs.empty() == trained.resumed.empty()) {
    return report_error(
        absl::InvalidArgumentError("give either a job file or --resume RUN_FOLDER"));
  }
  if (all.size() == 1) return train(all.front(), signals);
  if (!shared.spawns_workers) {
    return report_error(absl::InvalidArgumentError(
        "a coordinator runs one job; start one for each, and workers with --join for each"));
  }
  for (size_t n = 0; n < all.size(); ++n) {
    all[n] = with_label(all[n]);
    for (size_t before = 0; before < n; ++before) {
      if (all[before].label == all[n].label) all[n].label = absl::StrCat(n + 1, " ", all[n].label);
    }
    if (n > 0) all[n].chaos.clear();  // Faults are done to the workers, which all have.
  }
  return train_together(std::move(all), signals);
}

/// What no one catches is mostly a thread that cannot be started, by whichever library: there is no
/// way on from there, but people have to know why.
void end_on_uncaught() {
  const std::exception_ptr uncaught = std::current_exception();
  try {
    if (uncaught) std::rethrow_exception(uncaught);
  } catch (const std::system_error& error) {
    std::_Exit(report_error(absl::UnavailableError(absl::StrCat(
        "the system refuses what this process needs: ", error.what(),
        "; is there a limit on processes or threads (ulimit -u, a container's pids)?"))));
  } catch (const std::exception& error) {
    print_error_line(absl::StrCat("skein: uncaught: ", error.what()));
    finish_error_lines(1);
  }
  std::abort();
}

int run(int argc, char** argv) {
  hold_standard_descriptors();
  skein::gpu::end_on_truncated_files(kExitBadData);
  signal(SIGPIPE, SIG_IGN);  // A reader of our output that leaves must not end the training.
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto overrides = take_overrides(words);
  if (!overrides.ok()) return report_error(overrides.status());
  // One that comes while arguments are read is not lost.
  std::optional<Signals> signals;
  if (looks_at_signals(words)) signals.emplace();
  const auto fail_point = read_fail_point();
  if (!fail_point.ok()) return report_error(fail_point.status());

  CLI::App app("Skein trains neural networks in a pipeline across worker processes.", "skein");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", absl::StrCat("skein ", kVersion));

  TrainOptions train_options;
  TrainedJobs trained;
  bool as_json = false;
  CLI::App* train_verb =
      app.add_subcommand("train", "run a job on this machine: a coordinator and worker processes");
  add_train_options(*train_verb, trained, train_options, as_json);
  CLI::App* coordinator_verb =
      app.add_subcommand("coordinator", "run a job whose workers join from elsewhere");
  add_train_options(*coordinator_verb, trained, train_options, as_json);
  std::string listen = "127.0.0.1:29400";
  coordinator_verb->add_option("--listen", listen, "address to listen on")->capture_default_str();
  coordinator_verb->add_flag("--insecure", train_options.insecure,
                             "allow an address that is not loopback: nothing is encrypted yet");

  int train_parent = 0;
  train_verb->add_option("--parent", train_parent)->group("");  // Only `compare` gives it.
  CompareOptions comparing;
  CLI::App* compare_verb = add_compare_verb(app, comparing);

  ProfileOptions profiling;
  CLI::App* profile_verb = add_profile_verb(app, profiling);

  WorkerArguments worker_arguments;
  CLI::App* worker_verb = add_worker_verb(app, worker_arguments);

  PlanOptions plan_options;
  CLI::App* plan_verb = add_plan_verb(app, plan_options);
  SimulateOptions simulate_options;
  CLI::App* simulate_verb = add_simulate_verb(app, simulate_options);

  std::vector<std::string> asked = {kStatusAddress};
  CLI::App* status_verb = app.add_subcommand("status", "ask running coordinators how it goes");
  status_verb->add_option("where", asked, "host:port, or a run folder; several are asked in turn")
      ->capture_default_str();
  bool status_json = false;
  status_verb->add_flag("--json", status_json, "print JSON");

  std::string where;
  uint32_t to_drain = 0;
  CLI::App* drain_verb =
      app.add_subcommand("drain", "let a worker leave a run, which loses no step by it");
  drain_verb->add_option("where", where, "host:port, or a run folder")->required();
  drain_verb->add_option("--worker", to_drain, "its number, as in skein status")->required();

  DemoOptions demo_options;
  CLI::App* demo_verb = app.add_subcommand(
      "demo", "watch a pipeline of unlike workers train, lose one and take in another");
  demo_verb->add_option("--seconds", demo_options.seconds, "length of the demo, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(kDemoSecondsMin, 86400.0));
  demo_verb->add_option("--keep", demo_options.keep, "folder in which the run folder is made")
      ->capture_default_str();

  GenerateOptions generating;
  CLI::App* generate_verb = add_generate_verb(app, generating);

  EvalOptions evaluating;
  CLI::App* eval_verb = add_eval_verb(app, evaluating);

  ExportOptions exporting;
  CLI::App* export_verb = app.add_subcommand(
      "export", "write the model of a checkpoint as a folder in Hugging Face's form");
  export_verb
      ->add_option("checkpoint", exporting.checkpoint,
                   "checkpoint, run folder or folder in Hugging Face's form")
      ->required();
  export_verb->add_option("out", exporting.out, "folder that is made")->required();
  export_verb->add_option("--shard-mb", exporting.shard_mb, "MB of weights in a file at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));

  std::string to_verify;
  CLI::App* verify_verb = app.add_subcommand(
      "verify",
      "check every file and tensor of a checkpoint or a model's folder; a line for each "
      "fault, exit code 3");
  verify_verb
      ->add_option("checkpoint", to_verify,
                   "checkpoint, run folder or folder in Hugging Face's form")
      ->required();

  CLI::App* config_verb = app.add_subcommand("config", "look at job files");
  config_verb->require_subcommand(1);
  std::string config_path;
  CLI::App* show_verb =
      config_verb->add_subcommand("show", "print the whole job, with where each value comes from");
  show_verb->add_option("job", config_path, "job file (TOML)")->required();
  config_verb->add_subcommand("keys", "list every key");

  if (int code = check_verb(app, words); code != kExitDone) return code;
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return report_arguments(app, error);
  }

  train_options.overrides = *overrides;
  train_options.fail_point = *fail_point;
  train_options.format = as_json ? LogFormat::kJson : LogFormat::kText;
  if (train_verb->parsed() || coordinator_verb->parsed()) {
    train_options.spawns_workers = train_verb->parsed();
    if (absl::Status status = die_with_parent(train_parent); !status.ok()) {
      return report_error(status);
    }
    if (coordinator_verb->parsed()) train_options.listen = listen;
    return run_jobs(trained, train_options, *signals);
  }
  if (compare_verb->parsed()) {
    comparing.overrides = *overrides;
    return compare(comparing, *signals);
  }
  if (demo_verb->parsed()) {
    demo_options.overrides = *overrides;
    return demo(demo_options, *signals);
  }
  if (plan_verb->parsed()) {
    plan_options.planning.overrides = *overrides;
    return finish(plan(plan_options));
  }
  if (simulate_verb->parsed()) {
    simulate_options.planning.overrides = *overrides;
    return finish(simulate(simulate_options));
  }
  if (profile_verb->parsed()) {
    profiling.training.overrides = *overrides;
    return profile(profiling, *signals);
  }
  if (show_verb->parsed()) return finish(show_config(config_path, *overrides));
  if (eval_verb->parsed()) {
    const Overrides others = take_data_keys(*overrides, evaluating.data);
    if (absl::Status status = refuse_job_keys("skein eval", "only those of [data] matter to it",
                                              options_of(*eval_verb), others);
        !status.ok()) {
      return report_error(status);
    }
    return finish(evaluate(evaluating, std::cout));
  }
  const std::string why = worker_verb->parsed() ? "the coordinator's job counts" : "";
  const CLI::App& verb = innermost(app);
  if (absl::Status status = refuse_job_keys(whole_name(verb), why, options_of(verb), *overrides);
      !status.ok()) {
    return report_error(status);
  }
  if (worker_verb->parsed()) return run_worker(worker_arguments, *fail_point, *signals);
  if (drain_verb->parsed()) return finish(drain_worker(where, to_drain));
  if (status_verb->parsed()) return finish(print_status(asked, status_json));
  if (generate_verb->parsed()) return finish(generate(generating, std::cout));
  if (export_verb->parsed()) return finish(export_model(exporting, *signals, std::cout));
  if (verify_verb->parsed()) return finish(verify_checkpoints(to_verify, std::cout));
  std::fputs(describe_keys().c_str(), stdout);
  return finish(kExitDone);
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_on_uncaught);
  return run(argc, argv);
}
