#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

struct EvalOptions {
  std::string checkpoint;  // A checkpoint, a run folder or a folder in Hugging Face's form.
  Overrides data;          // Keys of [data]; empty: the validation data of the checkpoint's run.
  /// Tokens of a window; 0: as many as in training here, else the model's positions, at most 1024.
  int64_t seq_len = 0;
  int64_t batch = 8;    // Windows that are computed at once, >= 1.
  int64_t windows = 0;  // The first so many; 0: all.
  int64_t threads = 1;
  bool as_json = false;
};

/// What a model predicts of some data, window by window: the mean loss of a token in nats, the
/// perplexity, which is its exponential, and bits for each byte of the text.
/// Errors of `gpu::ModelSource`, `find_eval_data` and `gpu::TokenData`; InvalidArgument for options
/// out of range; ResourceExhausted if the machine has too little memory.
absl::Status evaluate(const EvalOptions& options, std::ostream& out);

}  // namespace skein::cli
