#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::bench {

/// Inputs with a class each.
struct LabelledPart {
  std::vector<float> inputs;     // [count, width], about 0 to 1.
  std::vector<uint8_t> classes;  // [count]
  uint64_t count() const { return classes.size(); }
};

struct LabelledData {
  std::string source;  // The name that the output gives to the data.
  uint64_t width = 0;
  uint64_t class_count = 0;
  LabelledPart training, held_out;
};

/// Four IDX files with MNIST's names; of more samples the first `training_max` and a fifth of it.
absl::StatusOr<LabelledData> read_labelled(const std::string& folder, const std::string& name,
                                           uint64_t training_max);

/// Normal inputs, whose classes a random network of two layers says; a tenth of the training
/// classes is drawn at random. A pure function of `seed`.
LabelledData make_teacher_data(uint64_t seed);

}  // namespace skein::bench
