#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "cli/verbs/draw_token.hpp"
#include "cli/verbs/named_devices.hpp"
#include "cli/verbs/text_workers.hpp"

namespace skein::cli {

/// More than anybody reads.
inline constexpr int64_t kTokensMax = 10'000'000;

struct GenerateOptions {
  std::string checkpoint;  // A checkpoint, a run folder or a folder in Hugging Face's form.
  std::string prompt = "\n";
  int64_t tokens = 300;  // To draw, in [1, kTokensMax].
  Sampling sampling;
  uint64_t seed = 1;
  DeviceNames devices;
  TextWorkers workers;      // That compute in place of the devices, if any are asked for.
  bool stops = true;        // At the model's end token, which is not written.
  bool is_numbers = false;  // The prompt and what is written are token numbers in any case.
};

/// Draws text from a trained model and writes it as it is drawn: UTF-8 where `ModelText` has text,
/// else token numbers separated by spaces, for which the prompt must be numbers too.
/// The model's layers are cut over the devices; which device has which is said on standard error,
/// unless there is but one and it is the processor. Errors of `gpu::ModelSource`, `ModelText`,
/// `open_devices`, `cut_model` and `gather_text_workers`; InvalidArgument for options out of range.
absl::Status generate(const GenerateOptions& options, std::ostream& out);

}  // namespace skein::cli
