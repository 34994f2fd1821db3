#include "net/codec/profile_codec.hpp"

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

/// Layers and numbers of rows that a profile may have; more is no profile.
constexpr unsigned kLayersMax = 100000;
constexpr unsigned kRowCountsMax = 64;

}  // namespace

void encode_profile(const plans::Profile& profile, schema::Profile::Builder to) {
  to.setDevice(profile.device);
  to.setStateFactor(profile.state_factor);
  to.setActivationFactor(profile.activation_factor);
  to.setGradientFactor(profile.gradient_factor);
  to.setUpdateUsPerByte(profile.update_us_per_byte);
  to.setTiedBytes(static_cast<uint64_t>(profile.tied_bytes));
  auto rows = to.initRows(static_cast<unsigned>(profile.rows.size()));
  for (unsigned i = 0; i < rows.size(); ++i) rows.set(i, static_cast<uint32_t>(profile.rows[i]));
  auto layers = to.initLayers(static_cast<unsigned>(profile.layers.size()));
  for (unsigned l = 0; l < layers.size(); ++l) {
    const plans::LayerProfile& from = profile.layers[l];
    layers[l].setName(from.name);
    layers[l].setActivationRowBytes(static_cast<uint64_t>(from.activation_row_bytes));
    layers[l].setStashRowBytes(static_cast<uint64_t>(from.stash_row_bytes));
    layers[l].setParameterBytes(static_cast<uint64_t>(from.parameter_bytes));
    auto times = layers[l].initTimes(static_cast<unsigned>(from.at.size()));
    for (unsigned i = 0; i < times.size(); ++i) {
      times[i].setForwardUs(from.at[i].forward_us);
      times[i].setBackwardInputUs(from.at[i].backward_input_us);
      times[i].setBackwardWeightUs(from.at[i].backward_weight_us);
    }
  }
}

absl::StatusOr<plans::Profile> decode_profile(schema::Profile::Reader from) {
  const auto rows = from.getRows();
  const auto layers = from.getLayers();
  if (rows.size() > kRowCountsMax || layers.size() > kLayersMax) {
    return absl::InvalidArgumentError(absl::StrCat("a profile of ", layers.size(), " layers at ",
                                                   rows.size(), " numbers of rows is too large"));
  }
  plans::Profile profile;
  profile.source = "measured";
  profile.device = from.getDevice().cStr();
  profile.state_factor = from.getStateFactor();
  if (from.getActivationFactor() != 0) profile.activation_factor = from.getActivationFactor();
  profile.gradient_factor = from.getGradientFactor();
  profile.update_us_per_byte = from.getUpdateUsPerByte();
  profile.tied_bytes = static_cast<int64_t>(from.getTiedBytes());
  for (uint32_t count : rows) profile.rows.push_back(count);
  for (auto layer : layers) {
    plans::LayerProfile& to = profile.layers.emplace_back();
    to.name = layer.getName().cStr();
    to.activation_row_bytes = static_cast<int64_t>(layer.getActivationRowBytes());
    to.stash_row_bytes = static_cast<int64_t>(layer.getStashRowBytes());
    to.parameter_bytes = static_cast<int64_t>(layer.getParameterBytes());
    const auto times = layer.getTimes();
    if (times.size() != rows.size()) {
      return absl::InvalidArgumentError(absl::StrCat("layer \"", to.name, "\" has ", times.size(),
                                                     " times for ", rows.size(),
                                                     " numbers of rows"));
    }
    for (auto each : times) {
      to.at.push_back({each.getForwardUs(), each.getBackwardInputUs(), each.getBackwardWeightUs()});
    }
  }
  SKEIN_RETURN_IF_ERROR(plans::validate(profile));
  return profile;
}

}  // namespace skein::net
