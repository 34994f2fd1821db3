#include "plans/profile/estimate.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"
#include "plans/job/block_parameters.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kFloatBytes = 4;

/// Times that each of the optimizer's tensors is read or written: AdamW reads weight, gradient and
/// both moments and writes all but the gradient; SGD has one moment.
constexpr double kAdamwTraffic = 7, kSgdTraffic = 5;

/// Bytes of one layer, of one row where the name says so.
struct Sizes {
  int64_t parameters = 0;      // The weights themselves.
  int64_t operands = 0;        // All weights as products read them.
  int64_t exact_row = 0;       // One tensor of [T, C] in float32.
  int64_t activation_row = 0;  // One tensor of [T, C].
  int64_t stash_row = 0;       // With the output.
  int64_t pending_row = 0;     // What a block's I leaves for its W.
  int64_t tables_row = 0;      // What is read of the embedding's tables.
  int64_t logits_row = 0;      // The head's logits: [T, V].
};

/// Bytes that the passes of a layer move.
struct Traffic {
  double forward = 0, backward_input = 0, backward_weight = 0;
};

Sizes sizes_of(const ModelSpec& model, int64_t layer, int64_t seq_len, const NumberBytes& bytes) {
  Sizes sizes;
  int64_t parameters = 0;
  for (const ParameterSpec& parameter : layer_parameters(model, layer, {layer, layer + 1})) {
    parameters += element_count(parameter);
  }
  sizes.parameters = parameters * kFloatBytes;
  sizes.operands = parameters * (bytes.weight_copy > 0 ? bytes.weight_copy : kFloatBytes);
  sizes.exact_row = seq_len * model.channels * kFloatBytes;
  sizes.activation_row = seq_len * model.channels * bytes.activation;
  sizes.stash_row = sizes.activation_row;  // Embedding: its output. Head: the gradient for B.
  if (layer_kind(model, layer) == LayerKind::kBlock) {
    const BlockNumbers numbers = block_numbers(model);
    sizes.stash_row +=
        (numbers.stash * bytes.activation + numbers.statistics * kFloatBytes) * seq_len;
    sizes.pending_row = numbers.pending * seq_len * bytes.activation;
  }
  sizes.tables_row = (has_rotary(model) ? 1 : 2) * sizes.exact_row;
  sizes.logits_row = seq_len * model.vocab_size * bytes.activation;
  return sizes;
}

Traffic traffic_of(LayerKind kind, const Sizes& sizes, int64_t rows) {
  const auto parameters = static_cast<double>(sizes.parameters);
  const auto operands = static_cast<double>(sizes.operands);
  const auto activation = static_cast<double>(rows * sizes.activation_row);
  const auto stash = static_cast<double>(rows * sizes.stash_row);
  const auto pending = static_cast<double>(rows * sizes.pending_row);
  const auto tables = static_cast<double>(rows * sizes.tables_row);
  switch (kind) {
    case LayerKind::kEmbedding:  // Tables to one tensor; its gradient added to each of them.
      return {tables + activation, 0, 2 * tables + activation};
    case LayerKind::kBlock:  // What is kept or pending is written once and read once per pass.
      return {operands + activation + 2 * stash, operands + stash + 2 * pending,
              2 * parameters + stash + pending};
    case LayerKind::kHead: {
      // The matrix is read twice and its gradient added up; logits are written and read, their
      // gradient is written in their place and read twice.
      const auto logits = static_cast<double>(rows * sizes.logits_row);
      return {2 * operands + 2 * parameters + 5 * logits + 4 * activation, 2 * activation, 0};
    }
  }
  return {};
}

struct Speed {
  double flops_per_second = 0, bytes_per_second = 0;
  double time_us(double flops, double bytes) const {
    return std::max(flops / flops_per_second, bytes / bytes_per_second) * kMicrosecondsPerSecond;
  }
};

std::string name_of(LayerKind kind, int64_t layer) {
  if (kind == LayerKind::kBlock) return absl::StrCat("block ", layer - 1);
  return kind == LayerKind::kEmbedding ? "embedding" : "head";
}

LayerProfile estimate_layer(const ModelSpec& model, int64_t index, int64_t seq_len,
                            const std::vector<int64_t>& rows, const Speed& speed,
                            const NumberBytes& bytes) {
  const LayerKind kind = layer_kind(model, index);
  const Sizes sizes = sizes_of(model, index, seq_len, bytes);
  LayerProfile layer;
  layer.name = name_of(kind, index);
  layer.activation_row_bytes = sizes.exact_row;
  layer.stash_row_bytes = sizes.stash_row;
  layer.parameter_bytes = sizes.parameters;
  for (int64_t r : rows) {
    LayerFlops flops = layer_flops(model, index, r, seq_len);
    if (kind == LayerKind::kHead) flops = {flops.total(), 0, 0};
    const Traffic traffic = traffic_of(kind, sizes, r);
    layer.at.push_back({speed.time_us(flops.forward, traffic.forward),
                        speed.time_us(flops.backward_input, traffic.backward_input),
                        speed.time_us(flops.backward_weight, traffic.backward_weight)});
  }
  return layer;
}

}  // namespace

NumberBytes number_bytes(const DeviceSpec& device) {
  return device.type == "cuda" && device.precision == "bfloat16" ? kBfloat16Bytes : NumberBytes{};
}

Profile estimate_profile(const ModelSpec& model, int64_t seq_len, const std::vector<int64_t>& rows,
                         const OptimizerSpec& optimizer, double device_flops_per_second,
                         double bytes_per_second, const NumberBytes& bytes) {
  SKEIN_CHECK(seq_len >= 1 && device_flops_per_second > 0 && bytes_per_second > 0)
      << seq_len << " tokens, " << device_flops_per_second << " FLOP/s, " << bytes_per_second
      << " B/s";
  Profile profile;
  profile.source = "estimated";
  profile.device =
      absl::StrCat(device_flops_per_second, " FLOP/s, ", bytes_per_second, " B/s of memory");
  profile.rows = rows;
  for (int64_t l = 0; l < layer_count(model); ++l) {
    profile.layers.push_back(estimate_layer(model, l, seq_len, rows,
                                            {device_flops_per_second, bytes_per_second}, bytes));
  }
  const bool is_sgd = optimizer.name == "sgd";
  const double copied = static_cast<double>(bytes.weight_copy) / kFloatBytes;
  profile.state_factor = (is_sgd ? 3 : 4) + copied;
  profile.activation_factor = static_cast<double>(bytes.activation) / kFloatBytes;
  profile.update_us_per_byte =
      ((is_sgd ? kSgdTraffic : kAdamwTraffic) + copied) / bytes_per_second * kMicrosecondsPerSecond;
  if (model.tied_head) profile.tied_bytes = model.vocab_size * model.channels * kFloatBytes;
  return profile;
}

void set_sleep_times(Profile& profile, const ModelSpec& model, const DeviceSpec& device,
                     int64_t micro_batch_rows) {
  SKEIN_CHECK(micro_batch_rows >= 1) << micro_batch_rows;
  profile.device = "a device that only sleeps";
  double update_us = 0;
  double parameter_bytes = 0;
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    LayerProfile& layer = profile.layers[l];
    const bool sleeps = layer_kind(model, static_cast<int64_t>(l)) == LayerKind::kBlock;
    parameter_bytes += static_cast<double>(layer.parameter_bytes);
    if (sleeps) update_us += device.sleep_update_us;
    for (size_t i = 0; i < layer.at.size(); ++i) {
      const double share =
          sleeps ? static_cast<double>(profile.rows[i]) / static_cast<double>(micro_batch_rows) : 0;
      const double half_us = device.sleep_backward_us / 2 * share;
      layer.at[i] = {device.sleep_forward_us * share, half_us, half_us};
    }
  }
  profile.update_us_per_byte = update_us / parameter_bytes;
}

}  // namespace skein::plans
