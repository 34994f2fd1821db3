#include "cli/verbs/eval_data.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/run/run_folder.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSources[] = {"data.path", "data.validation_path", "data.mixture"};

bool is_source(const std::string& key) {
  return std::find(std::begin(kSources), std::end(kSources), key) != std::end(kSources);
}

/// "run/checkpoint/step-1/" is of "run".
fs::path run_of(fs::path checkpoint) {
  checkpoint = checkpoint.lexically_normal();
  if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
  return checkpoint.parent_path().parent_path();
}

/// The job of the run that the checkpoint is of. NotFound if it is of none.
absl::StatusOr<std::string> job_text_of(const std::string& checkpoint) {
  std::error_code error;
  auto folder = open_run_folder(run_of(fs::absolute(checkpoint, error)).string());
  if (absl::IsNotFound(folder.status())) {  // It may be a link.
    folder = open_run_folder(run_of(fs::canonical(checkpoint, error)).string());
  }
  if (!folder.ok()) return folder.status();
  return read_resolved_job(*folder);
}

/// The key of the source that is given; empty: none.
absl::StatusOr<std::string> given_source(const Overrides& given) {
  std::string source;
  for (const auto& [key, value] : given) {
    if (!is_source(key) || key == source) continue;
    if (!source.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", source, " and --", key, ": a model is judged on one of them; leave the other out"));
    }
    source = key;
  }
  const bool is_kjv =
      std::find(given.begin(), given.end(),
                std::pair<std::string, std::string>("data.dataset", "kjv")) != given.end();
  return source.empty() && is_kjv ? "data.dataset" : source;
}

/// Flags under which nothing is left of the run's sources, and then those that are given.
Overrides replace_sources(const Overrides& given, const std::string& source) {
  Overrides overrides;
  if (!source.empty()) {
    for (const char* key : kSources) overrides.emplace_back(key, "");
    overrides.emplace_back("data.weights", "");
  }
  for (const auto& [key, value] : given) {
    // A file that is looked at as a whole is what is held out; a job has one to train on, too.
    if (key == "data.validation_path") overrides.emplace_back("data.path", value);
    if (key == "data.path") overrides.emplace_back("data.validation_path", value);
    overrides.emplace_back(key, value);
  }
  return overrides;
}

std::string name_of(const plans::DataSpec& data) {
  if (!data.validation_path.empty()) return data.validation_path;
  const std::string sources = data.mixture.empty() ? data.path : absl::StrJoin(data.mixture, ", ");
  return absl::StrCat("the part held out of ", sources.empty() ? data.dataset : sources);
}

}  // namespace

absl::StatusOr<EvalData> find_eval_data(const std::string& checkpoint, const Overrides& given,
                                        const SayLine& say) {
  SKEIN_ASSIGN_OR_RETURN(const std::string source, given_source(given));
  absl::StatusOr<std::string> text = job_text_of(checkpoint);
  if (absl::IsNotFound(text.status())) {
    if (source.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          checkpoint, " is of no run: say which data, as --data.dataset tokens --data.path FILE"));
    }
    text = "";
  }
  SKEIN_RETURN_IF_ERROR(text.status());
  SKEIN_ASSIGN_OR_RETURN(const LoadedJob job,
                         load_job_text(*text, "the run's job", replace_sources(given, source)));
  tell_ignored(job, say);
  return EvalData{job.spec.data, name_of(job.spec.data)};
}

}  // namespace skein::cli
