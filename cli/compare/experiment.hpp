#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

/// One way to train that is compared with the others: job keys.
struct Variant {
  std::string name;
  Overrides keys;
  bool operator==(const Variant&) const = default;
};

/// What `skein compare` runs: every variant in every scenario with every seed.
struct Experiment {
  std::string name;                    // compare.name; default: the file's.
  std::string base;                    // compare.base: the job file.
  std::string folder;                  // compare.folder: where everything is written.
  int64_t workers = 1;                 // compare.workers
  double target = 0;                   // compare.target: validation loss, fixed beforehand.
  std::vector<int64_t> seeds;          // compare.seeds: distinct.
  std::vector<std::string> scenarios;  // compare.scenarios: values of device.scenario.
  Overrides job;                       // [job]: keys of all runs.
  std::vector<Variant> variants;       // [variants.NAME], in the order of the file.
  std::string text;                    // The file as it was read.

  /// The first variant: the others are shown in relation to it.
  const Variant& baseline() const { return variants.front(); }
  size_t run_count() const { return variants.size() * scenarios.size() * seeds.size(); }
};

/// Most runs of an experiment: more are a slip of the pen.
inline constexpr size_t kRunsMax = 10'000;

/// Reads an experiment file (docs/compare.md). `compare.base` counts from the file's folder, all
/// other paths from where the program runs.
/// InvalidArgument   with file and line for what is wrong, and a suggestion for unknown keys.
absl::StatusOr<Experiment> load_experiment(const std::string& path);
/// The same for a file's text; `path` is for messages and `compare.base`.
absl::StatusOr<Experiment> parse_experiment(const std::string& text, const std::string& path);

/// Keys of all runs from the command line, over those of [job] and below those of variants.
/// InvalidArgument   for one that the comparison sets itself.
absl::Status add_keys(Experiment& experiment, const Overrides& keys);

/// One run of an experiment.
struct ExperimentRun {
  size_t seed = 0;  // Position in `seeds`, and so on.
  size_t scenario = 0;
  size_t variant = 0;
  bool operator==(const ExperimentRun&) const = default;
};

/// All runs in the order in which they are made: seeds outermost and variants innermost, so that a
/// machine that becomes slower in the course of hours does so for all variants alike.
std::vector<ExperimentRun> runs_of(const Experiment& experiment);

/// The folder of a run below the experiment's: "runs/seed-3/2-H2-factor-4/sdpipe".
std::string folder_of(const Experiment& experiment, const ExperimentRun& run);
/// The job keys of a run, the later ones over the earlier ones.
Overrides keys_of(const Experiment& experiment, const ExperimentRun& run);
/// Loads every job of the experiment, so that a mistake is found before hours of runs.
/// `say`  Gets what `tell_ignored` says of them, once.
/// InvalidArgument   that names the variant.
absl::Status check_jobs(const Experiment& experiment, const SayLine& say = {});

}  // namespace skein::cli
