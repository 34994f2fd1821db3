#include "bench/policies/labelled_data.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "bench/policies/idx_file.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kTeacherWidth = 32, kTeacherHidden = 16, kTeacherClasses = 10;
constexpr uint64_t kTeacherTraining = 2000, kTeacherHeldOut = 500;
constexpr uint64_t kWrongClassEvery = 10;

absl::StatusOr<LabelledPart> read_part(const std::string& prefix, uint64_t count_max,
                                       uint64_t& width) {
  SKEIN_ASSIGN_OR_RETURN(const IdxFile images, read_idx(prefix + "-images-idx3-ubyte", 3));
  SKEIN_ASSIGN_OR_RETURN(const IdxFile labels, read_idx(prefix + "-labels-idx1-ubyte", 1));
  if (images.sizes[0] != labels.sizes[0]) {
    return absl::DataLossError(absl::StrCat(prefix, ": ", images.sizes[0], " images and ",
                                            labels.sizes[0], " labels; get them anew"));
  }
  width = images.sizes[1] * images.sizes[2];
  const uint64_t count = std::min(count_max, labels.sizes[0]);
  LabelledPart part;
  part.classes.assign(labels.values.begin(), labels.values.begin() + static_cast<ptrdiff_t>(count));
  part.inputs.reserve(count * width);
  for (uint64_t i = 0; i < count * width; ++i) {
    part.inputs.push_back(static_cast<float>(images.values[i]) / 255.0f);
  }
  return part;
}

std::vector<double> normals(uint64_t seed, uint64_t stream, uint64_t count) {
  std::vector<double> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = plans::random_normal(seed, stream, i);
  return values;
}

struct Teacher {
  std::vector<double> first, second;
  uint8_t class_of(const float* input) const {
    std::vector<double> scores(kTeacherClasses);
    for (uint64_t h = 0; h < kTeacherHidden; ++h) {
      double sum = 0;
      for (uint64_t i = 0; i < kTeacherWidth; ++i) sum += input[i] * first[i * kTeacherHidden + h];
      for (uint64_t c = 0; c < kTeacherClasses; ++c) {
        scores[c] += std::max(0.0, sum) * second[h * kTeacherClasses + c];
      }
    }
    return static_cast<uint8_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
};

}  // namespace

absl::StatusOr<LabelledData> read_labelled(const std::string& folder, const std::string& name,
                                           uint64_t training_max) {
  LabelledData data{.source = name, .class_count = 10};
  SKEIN_ASSIGN_OR_RETURN(data.training, read_part(folder + "/train", training_max, data.width));
  uint64_t width = 0;
  SKEIN_ASSIGN_OR_RETURN(data.held_out, read_part(folder + "/t10k", training_max / 5, width));
  if (width != data.width) {
    return absl::DataLossError(
        absl::StrCat(folder, ": images of ", data.width, " and ", width, " pixels; get them anew"));
  }
  for (const LabelledPart* part : {&data.training, &data.held_out}) {
    const uint8_t most = *std::max_element(part->classes.begin(), part->classes.end());
    if (most >= data.class_count) {
      return absl::DataLossError(absl::StrCat(folder, ": class ", most, ", at most 9 is known"));
    }
  }
  return data;
}

LabelledData make_teacher_data(uint64_t seed) {
  LabelledData data{
      .source = "synthetic teacher", .width = kTeacherWidth, .class_count = kTeacherClasses};
  const Teacher teacher{normals(seed, 1, kTeacherWidth * kTeacherHidden),
                        normals(seed, 2, kTeacherHidden * kTeacherClasses)};
  uint64_t stream = 3;
  for (LabelledPart* part : {&data.training, &data.held_out}) {
    const bool is_training = part == &data.training;
    const uint64_t count = is_training ? kTeacherTraining : kTeacherHeldOut;
    for (const double value : normals(seed, stream++, count * kTeacherWidth)) {
      part->inputs.push_back(static_cast<float>(value));
    }
    plans::Rng rng(seed, stream++);
    for (uint64_t i = 0; i < count; ++i) {
      const bool is_wrong = is_training && rng.below(kWrongClassEvery) == 0;
      part->classes.push_back(is_wrong ? static_cast<uint8_t>(rng.below(kTeacherClasses))
                                       : teacher.class_of(&part->inputs[i * kTeacherWidth]));
    }
  }
  return data;
}

}  // namespace skein::bench
