#include "net/codec/profile.hpp"

#include <string>

#include "absl/strings/str_cat.h"
#include "net/codec/body_codec.hpp"

namespace skein::net {
namespace {

constexpr double kTimeUsMaxReal = static_cast<double>(kTimeUsMax);

plans::LayerProfile read_layer(schema::LayerProfile::Reader from, Bounds& bounds, size_t rows) {
  plans::LayerProfile to;
  to.name = bounds.name("name", from.getName());
  to.activation_row_bytes =
      bounds.signed_count("activationRowBytes", from.getActivationRowBytes(), kBytesMax);
  to.stash_row_bytes = bounds.signed_count("stashRowBytes", from.getStashRowBytes(), kBytesMax);
  to.parameter_bytes = bounds.signed_count("parameterBytes", from.getParameterBytes(), kBytesMax);
  const auto times = from.getTimes();
  if (times.size() != rows) {
    bounds.refuse("times", absl::StrCat("has ", times.size(), " elements, but rows has ", rows));
    return to;
  }
  for (unsigned i = 0; i < times.size(); ++i) {
    const auto in = bounds.element("times", i);
    const auto each = times[i];
    to.at.push_back(
        {bounds.finite("forwardUs", each.getForwardUs(), 0, kTimeUsMaxReal),
         bounds.finite("backwardInputUs", each.getBackwardInputUs(), 0, kTimeUsMaxReal),
         bounds.finite("backwardWeightUs", each.getBackwardWeightUs(), 0, kTimeUsMaxReal)});
  }
  return to;
}

void read_rows(capnp::List<uint32_t>::Reader from, Bounds& bounds, std::vector<int64_t>& to) {
  const unsigned count = bounds.size("rows", from.size(), kRowCountsMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("rows", i);
    if (from[i] == 0) bounds.refuse("", "is 0, at least 1");
    to.push_back(bounds.signed_count("", from[i], kRowsMax));
  }
}

void write_rows(const std::vector<int64_t>& from, capnp::List<uint32_t>::Builder to) {
  for (unsigned i = 0; i < to.size(); ++i) to.set(i, static_cast<uint32_t>(from[i]));
}

void read_profile(schema::Profile::Reader from, Bounds& bounds, plans::Profile& to) {
  const auto inside = bounds.inside("profile");
  to.source = "measured";
  to.device = bounds.name("device", from.getDevice());
  read_rows(from.getRows(), bounds, to.rows);
  const auto layers = from.getLayers();
  const unsigned count = bounds.size("layers", layers.size(), kLayersMax);
  for (unsigned l = 0; l < count && bounds.status().ok(); ++l) {
    const auto in = bounds.element("layers", l);
    to.layers.push_back(read_layer(layers[l], bounds, to.rows.size()));
  }
  to.state_factor = bounds.finite("stateFactor", from.getStateFactor(), 0, kFactorMax);
  to.gradient_factor = bounds.finite("gradientFactor", from.getGradientFactor(), 0, kFactorMax);
  const double kept = from.getActivationFactor();
  to.activation_factor = kept == 0 ? 1 : bounds.finite("activationFactor", kept, 0, kFactorMax);
  to.update_us_per_byte =
      bounds.finite("updateUsPerByte", from.getUpdateUsPerByte(), 0, kTimeUsMaxReal);
  to.tied_bytes = bounds.signed_count("tiedBytes", from.getTiedBytes(), kBytesMax);
  if (!bounds.status().ok()) return;
  // What the fields have to do with each other.
  const absl::Status status = plans::validate(to);
  if (!status.ok())
    bounds.refuse("", absl::StrCat("does not fit together: ", std::string(status.message())));
}

void write_profile(const plans::Profile& from, schema::Profile::Builder to) {
  to.setDevice(fit_text(from.device, kNameBytesMax));
  write_rows(from.rows, to.initRows(static_cast<unsigned>(from.rows.size())));
  auto layers = to.initLayers(static_cast<unsigned>(from.layers.size()));
  for (unsigned l = 0; l < layers.size(); ++l) {
    const plans::LayerProfile& layer = from.layers[l];
    layers[l].setName(layer.name);
    layers[l].setActivationRowBytes(static_cast<uint64_t>(layer.activation_row_bytes));
    layers[l].setStashRowBytes(static_cast<uint64_t>(layer.stash_row_bytes));
    layers[l].setParameterBytes(static_cast<uint64_t>(layer.parameter_bytes));
    auto times = layers[l].initTimes(static_cast<unsigned>(layer.at.size()));
    for (unsigned i = 0; i < times.size(); ++i) {
      times[i].setForwardUs(layer.at[i].forward_us);
      times[i].setBackwardInputUs(layer.at[i].backward_input_us);
      times[i].setBackwardWeightUs(layer.at[i].backward_weight_us);
    }
  }
  to.setStateFactor(from.state_factor);
  to.setGradientFactor(from.gradient_factor);
  to.setActivationFactor(from.activation_factor);
  to.setUpdateUsPerByte(from.update_us_per_byte);
  to.setTiedBytes(static_cast<uint64_t>(from.tied_bytes));
}

}  // namespace

bool is_link_speed(const plans::LinkSpeed& speed) {
  return speed.bytes_per_second >= kBytesPerSecondMin &&
         speed.bytes_per_second <= kBytesPerSecondMax && speed.latency_us >= 0 &&
         speed.latency_us <= kTimeUsMaxReal;
}

void read(schema::ProfileRequest::Reader from, Bounds& bounds, ProfileRequest& to) {
  read_rows(from.getRows(), bounds, to.rows);
  read(from.getPeers(), bounds, to.peers);
}

void write(const ProfileRequest& from, schema::ProfileRequest::Builder to) {
  write_rows(from.rows, to.initRows(static_cast<unsigned>(from.rows.size())));
  write(from.peers, to.initPeers(static_cast<unsigned>(from.peers.size())));
}

void read(schema::Profiled::Reader from, Bounds& bounds, plans::MeasuredWorker& to) {
  read_profile(from.getProfile(), bounds, to.profile);
  to.memory_bytes = bounds.signed_count("memoryBytes", from.getMemoryBytes(), kBytesMax);
  to.is_device_memory = from.getIsDeviceMemory();
  to.memory_bytes_max = bounds.signed_count("memoryBytesMax", from.getMemoryBytesMax(), kBytesMax);
  to.rounding_bytes = bounds.signed_count("roundingBytes", from.getRoundingBytes(), kBytesMax);
  const auto links = from.getLinks();
  const unsigned count = bounds.size("links", links.size(), kPeersMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("links", i);
    const auto link = links[i];
    to.links[bounds.worker("peer", link.getPeer())] = {
        bounds.finite("bytesPerSecond", link.getBytesPerSecond(), kBytesPerSecondMin,
                      kBytesPerSecondMax),
        bounds.finite("latencyUs", link.getLatencyUs(), 0, kTimeUsMaxReal)};
  }
}

void write(const plans::MeasuredWorker& from, schema::Profiled::Builder to) {
  write_profile(from.profile, to.initProfile());
  to.setMemoryBytes(static_cast<uint64_t>(from.memory_bytes));
  to.setIsDeviceMemory(from.is_device_memory);
  to.setMemoryBytesMax(static_cast<uint64_t>(from.memory_bytes_max));
  to.setRoundingBytes(static_cast<uint64_t>(from.rounding_bytes));
  auto links = to.initLinks(static_cast<unsigned>(from.links.size()));
  unsigned i = 0;
  for (const auto& [peer, speed] : from.links) {
    links[i].setPeer(peer.value);
    links[i].setBytesPerSecond(speed.bytes_per_second);
    links[i++].setLatencyUs(speed.latency_us);
  }
}

}  // namespace skein::net
