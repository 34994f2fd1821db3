#include "plans/profile/profile.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

/// What is beyond these is of no model, and sums of it would overflow.
constexpr double kTimeMostUs = 1e12;
constexpr int64_t kBytesMost = int64_t{1} << 56;

absl::Status bad_field(const std::string& field, const std::string& value,
                       const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat("profile: ", field, " = ", value, ": ", advice));
}

absl::Status check_time(double time_us, const std::string& field) {
  if (time_us >= 0 && time_us <= kTimeMostUs) return absl::OkStatus();
  return bad_field(field, absl::StrCat(time_us), "must be from 0 to 1e12");
}

absl::Status check_bytes(int64_t bytes, const std::string& field) {
  if (bytes >= 0 && bytes <= kBytesMost) return absl::OkStatus();
  return bad_field(field, absl::StrCat(bytes), "must be from 0 to 2^56");
}

absl::Status check_rows(const std::vector<int64_t>& rows) {
  if (rows.empty()) return bad_field("rows", "[]", "give at least one number of rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 1 || (i > 0 && rows[i] <= rows[i - 1])) {
      return bad_field(absl::StrCat("rows[", i, "]"), absl::StrCat(rows[i]),
                       "must be at least 1 and more than the one before it");
    }
  }
  return absl::OkStatus();
}

absl::Status check_layer(const Profile& profile, size_t index) {
  const LayerProfile& layer = profile.layers[index];
  const std::string name = absl::StrCat("layers[", index, "]");
  if (layer.at.size() != profile.rows.size()) {
    return bad_field(absl::StrCat(name, ".at"), absl::StrCat(layer.at.size(), " entries"),
                     absl::StrCat("needs one per number of rows, ", profile.rows.size()));
  }
  for (size_t i = 0; i < layer.at.size(); ++i) {
    const std::string at =
        profile.rows.size() == 1 ? "" : absl::StrCat(" at ", profile.rows[i], " rows");
    const LayerTimes& times = layer.at[i];
    SKEIN_RETURN_IF_ERROR(check_time(times.forward_us, absl::StrCat(name, ".forward_us", at)));
    SKEIN_RETURN_IF_ERROR(
        check_time(times.backward_input_us, absl::StrCat(name, ".backward_input_us", at)));
    SKEIN_RETURN_IF_ERROR(
        check_time(times.backward_weight_us, absl::StrCat(name, ".backward_weight_us", at)));
  }
  SKEIN_RETURN_IF_ERROR(
      check_bytes(layer.activation_row_bytes, absl::StrCat(name, ".activation_row_bytes")));
  SKEIN_RETURN_IF_ERROR(check_bytes(layer.stash_row_bytes, absl::StrCat(name, ".stash_row_bytes")));
  return check_bytes(layer.parameter_bytes, absl::StrCat(name, ".parameter_bytes"));
}

/// The number of `Profile::rows` from which the line to the next one is followed, and how far.
struct Position {
  size_t from = 0;
  double share = 0;     // Share of the way to `from + 1`; beyond 1 behind the last number.
  double factor = 1.0;  // Used instead where `share` is 0.
};

Position position_of(const std::vector<int64_t>& known, int64_t rows) {
  const auto wanted = static_cast<double>(rows);
  if (rows <= known.front() || known.size() == 1) {
    return {0, 0, wanted / static_cast<double>(known.front())};
  }
  size_t from = 0;
  while (from + 2 < known.size() && known[from + 1] <= rows) ++from;
  const auto below = static_cast<double>(known[from]);
  const auto above = static_cast<double>(known[from + 1]);
  return {from, (wanted - below) / (above - below), 1.0};
}

double value_at(const Position& position, const std::vector<LayerTimes>& at,
                double LayerTimes::*part) {
  const double below = at[position.from].*part;
  if (position.share == 0) return below * position.factor;
  const double above = at[position.from + 1].*part;
  // Beyond the last number a slope below zero is noise: more rows never take less time.
  if (position.share > 1) return above + std::max(0.0, above - below) * (position.share - 1);
  return below + (above - below) * position.share;
}

LayerTimes times_at(const LayerProfile& layer, const Position& position) {
  return {value_at(position, layer.at, &LayerTimes::forward_us),
          value_at(position, layer.at, &LayerTimes::backward_input_us),
          value_at(position, layer.at, &LayerTimes::backward_weight_us)};
}

const LayerProfile& layer_of(const Profile& profile, int64_t layer) {
  SKEIN_CHECK(layer >= 0 && layer < static_cast<int64_t>(profile.layers.size()))
      << "layer " << layer << " of " << profile.layers.size();
  return profile.layers[static_cast<size_t>(layer)];
}

}  // namespace

absl::Status validate(const Profile& profile) {
  SKEIN_RETURN_IF_ERROR(check_rows(profile.rows));
  if (profile.layers.empty()) return bad_field("layers", "[]", "give at least one layer");
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(check_layer(profile, i));
  }
  SKEIN_RETURN_IF_ERROR(check_time(profile.state_factor, "state_factor"));
  SKEIN_RETURN_IF_ERROR(check_time(profile.activation_factor, "activation_factor"));
  SKEIN_RETURN_IF_ERROR(check_time(profile.gradient_factor, "gradient_factor"));
  SKEIN_RETURN_IF_ERROR(check_time(profile.update_us_per_byte, "update_us_per_byte"));
  const int64_t tied_max =
      std::min(profile.layers.front().parameter_bytes, profile.layers.back().parameter_bytes);
  if (profile.tied_bytes < 0 || profile.tied_bytes > tied_max) {
    return bad_field("tied_bytes", absl::StrCat(profile.tied_bytes),
                     absl::StrCat("must be between 0 and ", tied_max,
                                  ", the parameter_bytes of the first and of the last layer"));
  }
  return absl::OkStatus();
}

LayerTimes layer_times(const Profile& profile, int64_t layer, int64_t rows) {
  SKEIN_CHECK(rows >= 1) << rows << " rows";
  return times_at(layer_of(profile, layer), position_of(profile.rows, rows));
}

LayerTimes range_times(const Profile& profile, const LayerRange& layers, int64_t rows) {
  SKEIN_CHECK(rows >= 1) << rows << " rows";
  const Position position = position_of(profile.rows, rows);
  LayerTimes sum;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const LayerTimes times = times_at(layer_of(profile, layer), position);
    sum.forward_us += times.forward_us;
    sum.backward_input_us += times.backward_input_us;
    sum.backward_weight_us += times.backward_weight_us;
  }
  return sum;
}

StageMemory stage_memory(const Profile& profile, const LayerRange& layers, int64_t rows,
                         bool recompute) {
  int64_t stash_row_bytes = layers.begin > 0 ? kept_row_bytes(profile, layers.begin - 1) : 0;
  int64_t largest = 0;
  for (int64_t l = layers.begin; l < layers.end; ++l) {
    const LayerProfile& layer = layer_of(profile, l);
    stash_row_bytes += recompute ? kept_row_bytes(profile, l) : layer.stash_row_bytes;
    largest = std::max(largest, layer.stash_row_bytes);
  }
  StageMemory memory;
  memory.state_bytes =
      std::llround(static_cast<double>(parameter_bytes(profile, layers)) * profile.state_factor);
  memory.stash_bytes = stash_row_bytes * rows;
  memory.extra_bytes = recompute ? largest * rows : 0;
  // State beyond whole multiples of the weights is the copy that products read.
  const double copied = profile.state_factor - std::floor(profile.state_factor);
  const LayerRange blocks{std::max<int64_t>(layers.begin, 1),
                          std::min(layers.end, static_cast<int64_t>(profile.layers.size()) - 1)};
  for (int64_t l = blocks.begin; l < blocks.end; ++l) {
    memory.version_bytes +=
        std::llround(static_cast<double>(layer_of(profile, l).parameter_bytes) * (1 + copied));
  }
  return memory;
}

int64_t kept_row_bytes(const Profile& profile, int64_t layer) {
  return std::llround(static_cast<double>(layer_of(profile, layer).activation_row_bytes) *
                      profile.activation_factor);
}

int64_t cut_row_bytes(const Profile& profile, int64_t layer) {
  return kept_row_bytes(profile, layer - 1);
}

int64_t parameter_bytes(const Profile& profile, const LayerRange& layers) {
  int64_t bytes = 0;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    bytes += layer_of(profile, layer).parameter_bytes;
  }
  const auto last = static_cast<int64_t>(profile.layers.size()) - 1;
  if (last > 0 && layers.contains(0) && layers.contains(last)) bytes -= profile.tied_bytes;
  return bytes;
}

}  // namespace skein::plans
