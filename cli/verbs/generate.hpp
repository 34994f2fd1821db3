#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

struct GenerateOptions {
  std::string checkpoint;  // A checkpoint folder or a run folder.
  std::string prompt = "\n";
  int64_t tokens = 300;      // To draw, >= 1.
  double temperature = 0.8;  // 0: always the likeliest.
  int64_t top_k = 40;        // Among so many likeliest; 0: all.
  uint64_t seed = 1;
  int64_t threads = 1;
};

/// Draws text from a trained model and writes it as it is drawn: UTF-8 for a byte-level model (V at
/// most 256), else token numbers separated by spaces, for which the prompt must be numbers too.
/// Errors of `gpu::CheckpointReader`; InvalidArgument for options out of range.
absl::Status generate(const GenerateOptions& options, std::ostream& out);

}  // namespace skein::cli
