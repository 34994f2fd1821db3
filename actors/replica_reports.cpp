#include <algorithm>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/replica.hpp"

namespace skein::actors {

void ReplicaState::finish_action(const plans::RunAction& run) {
  record(plans::to_text(run.action), 0, work_start_us, now_us(), run.action.microbatch);
  if (run.action.type == plans::ActionType::kForward) {
    send_output(net::schema::TensorKind::ACTIVATION, run.step, run.action.microbatch);
    return;
  }
  if (run.action.type != plans::ActionType::kBackwardInput) --stashes;
  if (run.action.type != plans::ActionType::kBackwardWeight) {
    send_output(net::schema::TensorKind::GRADIENT, run.step, run.action.microbatch);
  }
}

void ReplicaState::carry_out(const plans::SendReady& command) {
  ready_us = now_us();
  const gpu::StageModel& model = *config.parts.model;
  report([&](auto body) {
    auto ready = body.initReady();
    ready.setReplica(config.parts.id.value);
    ready.setStep(command.step);
    ready.setSamples(static_cast<uint32_t>(rows.count * config.plan.microbatch_count));
    ready.setLossSum(model.has_head() ? model.loss_sum() : 0);
    ready.setLossTokens(model.has_head() ? static_cast<uint64_t>(model.loss_tokens()) : 0);
    ready.setNeedsGroups(!config.parts.groups.empty());
    ready.setNormSquared(*norm_squared);
    ready.setBusyUs(busy_us);
    ready.setStepUs(ready_us - step_start_us);
    ready.setStashPeak(stash_peak);
  });
  step_start_us = ready_us;
  busy_us = 0;
  stash_peak = stashes;
}

void ReplicaState::carry_out(const plans::SendReduced& command) {
  report([&](auto body) {
    auto reduced = body.initReduced();
    reduced.setReplica(config.parts.id.value);
    reduced.setStep(command.step);
    reduced.setNormSquared(*norm_squared);
  });
}

void ReplicaState::carry_out(const plans::SendValidated& command) {
  const gpu::StageModel& model = *config.parts.model;
  report([&](auto body) {
    auto validated = body.initValidated();
    validated.setReplica(config.parts.id.value);
    validated.setStep(command.step);
    validated.setLossSum(model.loss_sum());
    validated.setLossTokens(static_cast<uint64_t>(model.loss_tokens()));
  });
}

void ReplicaState::on_shard_written(const ShardWritten& written) {
  if (!written.files.ok()) return fail(written.files.status());
  const std::vector<gpu::SavedFile>& files = *written.files;
  report([&](auto body) {
    auto saved = body.initShardSaved();
    saved.setStage(static_cast<uint32_t>(written.stage));
    saved.setStep(written.steps_done);
    auto list = saved.initFiles(static_cast<unsigned>(files.size()));
    for (unsigned i = 0; i < files.size(); ++i) {
      list[i].setName(files[i].name);
      list[i].setBytes(files[i].bytes);
      list[i].setCrc32c(files[i].crc32c);
      auto tensors = list[i].initTensors(static_cast<unsigned>(files[i].tensors.size()));
      for (unsigned t = 0; t < files[i].tensors.size(); ++t) tensors.set(t, files[i].tensors[t]);
    }
  });
}

std::shared_ptr<const void> ReplicaState::traced(const net::DataPlane::Rows& part,
                                                 gpu::StagingPool::Handle memory) {
  const bool backwards = part.key.kind == net::schema::TensorKind::GRADIENT;
  TensorSent sent;
  sent.slice = absl::StrCat(stage, backwards ? "SEND_B" : "SEND_F", part.key.microbatch);
  sent.microbatch = static_cast<int32_t>(part.key.microbatch);
  sent.start_us = now_us();
  // The owner goes when the bytes are in the socket: its end is the end of the send.
  auto at_end = [memory = std::move(memory), to = Replica(self), sent](const void*) {
    caf::anon_send(to, sent);
  };
  return std::shared_ptr<const void>(static_cast<const void*>(part.payload.data()), at_end);
}

void ReplicaState::record(const std::string& slice, uint8_t track, uint64_t start_us,
                          uint64_t end_us, int32_t microbatch) {
  if (!profiles || end_us < start_us) return;
  slices.push_back({slice, track, start_us, end_us - start_us, microbatch});
}

void ReplicaState::send_timings(uint64_t step) {
  report([&](auto body) {
    auto timings = body.initTimings();
    timings.setReplica(config.parts.id.value);
    timings.setStep(step);
    auto list = timings.initSlices(static_cast<unsigned>(slices.size()));
    for (unsigned i = 0; i < slices.size(); ++i) {
      list[i].setName(slices[i].name);
      list[i].setTrack(slices[i].track);
      list[i].setStartUs(
          static_cast<uint64_t>(static_cast<int64_t>(slices[i].start_us) + clock_offset_us));
      list[i].setDurationUs(slices[i].duration_us);
      list[i].setMicrobatch(slices[i].microbatch);
    }
  });
  slices.clear();
}

}  // namespace skein::actors
