#include "net/codec/steps.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/codec/body_codec.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::net {
namespace {

plans::SavedFile read_file(schema::SavedFile::Reader from, Bounds& bounds) {
  plans::SavedFile to;
  to.name = bounds.file_name("name", from.getName());
  to.bytes = bounds.count("bytes", from.getBytes(), kBytesMax);
  to.crc32c = from.getCrc32c();  // Any 32 bits.
  const auto tensors = from.getTensors();
  const unsigned count = bounds.size("tensors", tensors.size(), kTensorsPerFileMax);
  to.tensors.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("tensors", i);
    to.tensors.push_back(bounds.name("", tensors[i]));
  }
  return to;
}

Slice read_slice(schema::Slice::Reader from, Bounds& bounds) {
  Slice to;
  to.name = bounds.name("name", from.getName());
  to.track = static_cast<uint8_t>(bounds.index("track", from.getTrack(), kTracks));
  to.start_us = bounds.count("startUs", from.getStartUs(), kTimeUsMax);
  to.duration_us = bounds.count("durationUs", from.getDurationUs(), kTimeUsMax);
  to.microbatch = from.getMicrobatch();
  if (to.microbatch < -1 || to.microbatch >= static_cast<int64_t>(kMicrobatchesMax)) {
    bounds.refuse("microbatch", absl::StrCat("is ", to.microbatch, ", -1 for none or less than ",
                                             kMicrobatchesMax));
  }
  return to;
}

}  // namespace

void read(schema::Ready::Reader from, Bounds& bounds, plans::ReadyReport& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.loss_sum = from.getLossSum();  // Not finite if the training has diverged.
  to.loss_tokens = bounds.count("lossTokens", from.getLossTokens(), kSamplesMax);
  to.needs_groups = from.getNeedsGroups();
  to.norm_squared = bounds.norm_or_diverged("normSquared", from.getNormSquared());
  to.busy_us = bounds.count("busyUs", from.getBusyUs(), kTimeUsMax);
  to.step_us = bounds.count("stepUs", from.getStepUs(), kTimeUsMax);
  to.stash_peak =
      static_cast<uint32_t>(bounds.count("stashPeak", from.getStashPeak(), kMicrobatchesMax));
  to.snapshot_us = bounds.count("snapshotUs", from.getSnapshotUs(), kTimeUsMax);
  to.weight_delay =
      static_cast<uint32_t>(bounds.count("weightDelay", from.getWeightDelay(), kMicrobatchesMax));
  to.device_wait_us = bounds.count("deviceWaitUs", from.getDeviceWaitUs(), kTimeUsMax);
  to.turns.head = bounds.count("turnHead", from.getTurnHead(), plans::kTurnPositionMax);
  to.turns.has_turns = from.getHasTurns();
}

void write(const plans::ReadyReport& from, schema::Ready::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setLossSum(from.loss_sum);
  to.setLossTokens(from.loss_tokens);
  to.setNeedsGroups(from.needs_groups);
  to.setNormSquared(from.norm_squared);
  to.setBusyUs(from.busy_us);
  to.setStepUs(from.step_us);
  to.setStashPeak(from.stash_peak);
  to.setSnapshotUs(from.snapshot_us);
  to.setWeightDelay(from.weight_delay);
  to.setDeviceWaitUs(from.device_wait_us);
  to.setTurnHead(from.turns.head);
  to.setHasTurns(from.turns.has_turns);
}

void read(schema::EarlySignal::Reader from, Bounds& bounds, EarlySignal& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
}

void write(const EarlySignal& from, schema::EarlySignal::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
}

void read(schema::TokenOrder::Reader from, Bounds& bounds, plans::TokenOrder& to) {
  constexpr uint64_t kKinds = 3;
  to.kind = static_cast<plans::TokenOrder::Kind>(bounds.index("kind", from.getKind(), kKinds));
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.token = static_cast<int32_t>(bounds.index("token", from.getToken(), kMicrobatchesMax));
  const auto others = from.getOthers();
  const unsigned count = bounds.size("others", others.size(), plans::kTokenInputsMax);
  to.others.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("others", i);
    to.others.push_back(bounds.replica("", others[i]));
  }
}

void write(const plans::TokenOrder& from, schema::TokenOrder::Builder to) {
  to.setKind(static_cast<uint32_t>(from.kind));
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setToken(static_cast<uint32_t>(from.token));
  auto others = to.initOthers(static_cast<unsigned>(from.others.size()));
  for (unsigned i = 0; i < from.others.size(); ++i) others.set(i, from.others[i].value);
}

void read(schema::TokenReport::Reader from, Bounds& bounds, TokenReport& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.token = static_cast<int32_t>(bounds.index("token", from.getToken(), kMicrobatchesMax));
  constexpr uint64_t kEvents = 3;
  to.event = static_cast<plans::TokenEvent>(bounds.index("event", from.getEvent(), kEvents));
}

void write(const TokenReport& from, schema::TokenReport::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setToken(static_cast<uint32_t>(from.token));
  to.setEvent(static_cast<uint32_t>(from.event));
}

void read(schema::Reduced::Reader from, Bounds& bounds, Reduced& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.norm_squared = bounds.norm_or_diverged("normSquared", from.getNormSquared());
}

void write(const Reduced& from, schema::Reduced::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setNormSquared(from.norm_squared);
}

void read(schema::Commit::Reader from, Bounds& bounds, plans::CommitOrder& to) {
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.gradient_norm = bounds.norm("gradientNorm", from.getGradientNorm());
  to.validate = from.getValidate();
  to.checkpoint = from.getCheckpoint();
  to.last = from.getLast();
  to.snapshot = from.getSnapshot();
  to.snapshot_floor = bounds.count("snapshotFloor", from.getSnapshotFloor(), kStepsMax);
  to.profile = from.getProfile();
  to.turn = bounds.count("turn", from.getTurn(), plans::kTurnPositionMax);
}

void write(const plans::CommitOrder& from, schema::Commit::Builder to) {
  to.setStep(from.step);
  to.setGradientNorm(from.gradient_norm);
  to.setValidate(from.validate);
  to.setCheckpoint(from.checkpoint);
  to.setLast(from.last);
  to.setSnapshot(from.snapshot);
  to.setSnapshotFloor(from.snapshot_floor);
  to.setProfile(from.profile);
  to.setTurn(from.turn);
}

void read(schema::Validated::Reader from, Bounds& bounds, Validated& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.loss_sum = from.getLossSum();  // Not finite if the training has diverged.
  to.loss_tokens = bounds.count("lossTokens", from.getLossTokens(), kSamplesMax);
}

void write(const Validated& from, schema::Validated::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setLossSum(from.loss_sum);
  to.setLossTokens(from.loss_tokens);
}

void read(schema::ShardSaved::Reader from, Bounds& bounds, ShardSaved& to) {
  to.stage = bounds.stage("stage", from.getStage());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  const auto files = from.getFiles();
  const unsigned count = bounds.size("files", files.size(), kFilesPerShardMax);
  to.files.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("files", i);
    to.files.push_back(read_file(files[i], bounds));
  }
  to.error = bounds.text("error", from.getError(), kReasonBytesMax);
}

void write(const ShardSaved& from, schema::ShardSaved::Builder to) {
  to.setStage(static_cast<uint32_t>(from.stage));
  to.setStep(from.step);
  to.setError(fit_text(from.error, kReasonBytesMax));
  auto files = to.initFiles(static_cast<unsigned>(from.files.size()));
  for (unsigned i = 0; i < files.size(); ++i) {
    const plans::SavedFile& file = from.files[i];
    files[i].setName(file.name);
    files[i].setBytes(file.bytes);
    files[i].setCrc32c(file.crc32c);
    auto tensors = files[i].initTensors(static_cast<unsigned>(file.tensors.size()));
    for (unsigned t = 0; t < tensors.size(); ++t) tensors.set(t, file.tensors[t]);
  }
}

void read(schema::ShardSent::Reader from, Bounds& bounds, ShardSent& to) {
  to.stage = bounds.stage("stage", from.getStage());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
}

void write(const ShardSent& from, schema::ShardSent::Builder to) {
  to.setStage(static_cast<uint32_t>(from.stage));
  to.setStep(from.step);
}

void read(schema::Timings::Reader from, Bounds& bounds, Timings& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.staleness = bounds.count("staleness", from.getStaleness(), kStepsMax);
  to.weight_delay =
      static_cast<uint32_t>(bounds.count("weightDelay", from.getWeightDelay(), kMicrobatchesMax));
  const auto slices = from.getSlices();
  const unsigned count = bounds.size("slices", slices.size(), kSlicesMax);
  to.slices.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("slices", i);
    to.slices.push_back(read_slice(slices[i], bounds));
  }
}

void write(const Timings& from, schema::Timings::Builder to) {
  to.setReplica(from.replica.value);
  to.setStep(from.step);
  to.setStaleness(from.staleness);
  to.setWeightDelay(from.weight_delay);
  auto slices = to.initSlices(static_cast<unsigned>(std::min(from.slices.size(), kSlicesMax)));
  for (unsigned i = 0; i < slices.size(); ++i) {
    const Slice& slice = from.slices[i];
    slices[i].setName(slice.name);
    slices[i].setTrack(slice.track);
    slices[i].setStartUs(slice.start_us);
    slices[i].setDurationUs(slice.duration_us);
    slices[i].setMicrobatch(slice.microbatch);
  }
}

}  // namespace skein::net
