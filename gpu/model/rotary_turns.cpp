#include "gpu/model/rotary_turns.hpp"

#include <cmath>

#include "plans/base/status_macros.hpp"

namespace skein::gpu {

std::vector<float> rotary_turns(const plans::ModelSpec& model, int64_t seq_len) {
  const std::vector<double> frequencies = plans::rotary_frequencies(model);
  const int64_t size = plans::head_size(model);
  const int64_t pairs = size / 2;
  std::vector<float> turns(static_cast<size_t>(seq_len * size));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    for (int64_t position = 0; position < seq_len; ++position) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(pair)];
      const auto at = static_cast<size_t>(position * size + pair);
      turns[at] = static_cast<float>(std::cos(angle));
      turns[at + static_cast<size_t>(pairs)] = static_cast<float>(std::sin(angle));
    }
  }
  return turns;
}

absl::StatusOr<Buffer> upload_rotary_turns(const plans::ModelSpec& model, int64_t seq_len,
                                           Device& device) {
  if (!plans::has_rotary(model)) return Buffer();
  const std::vector<float> turns = rotary_turns(model, seq_len);
  const auto bytes = static_cast<int64_t>(turns.size() * sizeof(float));
  SKEIN_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(bytes));
  SKEIN_RETURN_IF_ERROR(device.upload(turns, buffer.floats()));
  return buffer;
}

}  // namespace skein::gpu
