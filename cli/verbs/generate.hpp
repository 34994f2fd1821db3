#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "cli/verbs/draw_token.hpp"

namespace skein::cli {

/// More than anybody reads.
inline constexpr int64_t kTokensMax = 10'000'000;

struct GenerateOptions {
  std::string checkpoint;  // A checkpoint, a run folder or a folder in Hugging Face's form.
  std::string prompt = "\n";
  int64_t tokens = 300;  // To draw, in [1, kTokensMax].
  Sampling sampling;
  uint64_t seed = 1;
  int64_t threads = 1;
  bool stops = true;        // At the model's end token, which is not written.
  bool is_numbers = false;  // The prompt and what is written are token numbers in any case.
};

/// Draws text from a trained model and writes it as it is drawn: UTF-8 where `ModelText` has text,
/// else token numbers separated by spaces, for which the prompt must be numbers too.
/// Errors of `ModelSource` and `ModelText`; InvalidArgument for options out of range;
/// ResourceExhausted if the machine has too little memory.
absl::Status generate(const GenerateOptions& options, std::ostream& out);

}  // namespace skein::cli
