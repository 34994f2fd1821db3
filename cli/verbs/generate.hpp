#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "cli/verbs/draw_token.hpp"

namespace skein::cli {

struct GenerateOptions {
  std::string checkpoint;  // A checkpoint, a run folder or a folder in Hugging Face's form.
  std::string prompt = "\n";
  int64_t tokens = 300;  // To draw, >= 1.
  Sampling sampling;
  uint64_t seed = 1;
  int64_t threads = 1;
  bool stops = true;        // At the model's end token, which is not written.
  bool is_numbers = false;  // The prompt and what is written are token numbers in any case.
  bool caches = true;       // Keys and values; without, all is computed anew for each token.
};

/// Draws text from a trained model and writes it as it is drawn: UTF-8 where `ModelText` has text,
/// else token numbers separated by spaces, for which the prompt must be numbers too.
/// Errors of `ModelSource` and `ModelText`; InvalidArgument for options out of range.
absl::Status generate(const GenerateOptions& options, std::ostream& out);

}  // namespace skein::cli
