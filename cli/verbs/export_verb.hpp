#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "cli/run/signals.hpp"

namespace skein::cli {

struct ExportOptions {
  std::string checkpoint;   // A checkpoint, a run folder or a folder in Hugging Face's form.
  std::string out;          // Folder that is made.
  int64_t shard_mb = 4096;  // MB of weights in a file, >= 1; what fits into one is one file.
};

/// Writes a model without anything of training as a folder in Hugging Face's form: config.json,
/// model.safetensors or several files with an index, the tokenizer, generation_config.json. The
/// folder is there as a whole or not at all. Errors of `gpu::ModelSource`; InvalidArgument if `out`
/// is there already, DataLoss if a weight is no finite number, Cancelled after a signal.
absl::Status export_model(const ExportOptions& options, Signals& signals, std::ostream& out);

}  // namespace skein::cli
