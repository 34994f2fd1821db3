#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"

namespace skein::cli {

/// A job with where each of its values comes from.
struct LoadedJob {
  plans::JobSpec spec;
  std::map<std::string, std::string> origins;  // "training.steps" -> "job.toml:12", "flag", ...
  std::string text;                            // The file as it was read.
  /// A line for each key that was given and is no longer used.
  std::vector<std::string> ignored;
};

/// "training.steps" and "200", in the order of the command line.
using Overrides = std::vector<std::pair<std::string, std::string>>;

enum class JobUse {
  kRun,
  kFindRun,  // Name and folder are asked for: with model.from, which may be gone, no more is read.
};

/// Reads a job file (TOML) and puts the environment (SKEIN_SECTION_KEY) and the overrides over it,
/// then checks the result. Precedence: flag, environment, file, flavor or model.from,
/// default. Keys that are no longer used are ignored, wherever they are from.
/// InvalidArgument   with file and line for what is wrong in it, and a suggestion for unknown keys.
/// Else as `read_text_file`.
absl::StatusOr<LoadedJob> load_job(const std::string& path, const Overrides& overrides,
                                   JobUse use = JobUse::kRun);
/// The same for a job file's text, which messages call `name`.
absl::StatusOr<LoadedJob> load_job_text(const std::string& text, const std::string& name,
                                        const Overrides& overrides, JobUse use = JobUse::kRun);

/// Gets a line for people; none: it goes to standard error.
using SayLine = std::function<void(const std::string& line)>;
/// Says the lines of `ignored`. Every verb that reads a job does, once.
void tell_ignored(const LoadedJob& job, const SayLine& say = {});

/// A job file's text without environment: what a worker gets from the coordinator.
absl::StatusOr<plans::JobSpec> parse_job(const std::string& toml);

/// The whole job as TOML with a comment per key; parses back to the same job. With `origins`, each
/// comment says where the value comes from.
std::string to_toml(const plans::JobSpec& job, const std::map<std::string, std::string>* origins);

/// Takes `--section.key value`, `--section.key=value`, `--section.key` and `--section.no-key` out
/// of the arguments. The rest stays in order. InvalidArgument   for an unknown key or a missing
/// value.
absl::StatusOr<Overrides> take_overrides(std::vector<std::string>& arguments);

/// Every key with type, default and help, for people.
std::string describe_keys();

}  // namespace skein::cli
