#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

/// What a model is judged on.
struct EvalData {
  plans::DataSpec spec;  // What it holds out for validation is looked at.
  std::string name;      // It is for people to read.
};

/// The data of the run that a checkpoint's folder is of, with the keys of [data] that are `given`
/// over them. A source that is given, --data.path, --data.validation_path, --data.mixture or the
/// dataset "kjv", stands for all that the run has: of a mixture what is held out, of a path all.
/// InvalidArgument   two sources are given, or none and there is no run.
/// Else errors of `open_run_folder`, `read_resolved_job` and `load_job_text`.
/// `say`  Gets what `tell_ignored` says of the run's job.
absl::StatusOr<EvalData> find_eval_data(const std::string& checkpoint, const Overrides& given,
                                        const SayLine& say = {});

}  // namespace skein::cli
