#include <algorithm>
#include <utility>
#include <variant>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/replica/rank.hpp"

namespace skein::actors {

/// A validation pass is no part of a step's time.
void RankState::finish(const Running& work, uint64_t start_us, uint64_t end_us) {
  const uint64_t taken_us = end_us - start_us;
  if (const auto* run = std::get_if<plans::RunAction>(&work.command)) {
    HeldReplica& replica = held.at(run->action.stage);
    replica.busy_us += taken_us;
    if (run->part == 0) replica.parts_start_us = start_us;
    if (!run->is_last_part()) return;
    record(replica.stage, plans::to_text(run->action), 0, replica.parts_start_us, end_us,
           run->action.microbatch);
    finish_action(*run, replica);
  } else if (const auto* norm = std::get_if<plans::RunNorm>(&work.command)) {
    held.at(norm->stage).busy_us += taken_us;
  } else if (std::holds_alternative<plans::RunUpdate>(work.command)) {
    for (auto& [stage, replica] : held) replica.busy_us += taken_us / held.size();
    record(held.begin()->first, "update", 0, start_us, end_us, -1);
  }
}

void RankState::finish_action(const plans::RunAction& run, HeldReplica& replica) {
  if (run.action.type == plans::ActionType::kForward) {
    replica.stash_peak = std::max(replica.stash_peak, ++replica.stashes);
  } else if (run.action.type != plans::ActionType::kBackwardInput) {
    --replica.stashes;
  }
}

void RankState::carry_out(const plans::SendReady& command) {
  reach(config.fail_point, FailPlace::kBeforeReady);
  HeldReplica& replica = held.at(command.stage);
  replica.ready_us = now_us();
  const gpu::StageModel& model = *replica.parts.model;
  report([&](auto body) {
    auto ready = body.initReady();
    ready.setReplica(replica.parts.id.value);
    ready.setStep(command.step);
    ready.setSamples(static_cast<uint32_t>(replica.rows.count * config.plan.microbatch_count));
    ready.setLossSum(model.has_head() ? model.loss_sum() : 0);
    ready.setLossTokens(model.has_head() ? static_cast<uint64_t>(model.loss_tokens()) : 0);
    ready.setNeedsGroups(!replica.parts.groups.empty());
    ready.setNormSquared(*replica.norm_squared);
    ready.setBusyUs(replica.busy_us);
    ready.setStepUs(replica.ready_us - step_start_us);
    ready.setStashPeak(replica.stash_peak);
    ready.setSnapshotUs(replica.snapshot_us);
  });
  replica.busy_us = 0;
  replica.stash_peak = replica.stashes;
}

void RankState::carry_out(const plans::SendReduced& command) {
  const HeldReplica& replica = held.at(command.stage);
  report([&](auto body) {
    auto reduced = body.initReduced();
    reduced.setReplica(replica.parts.id.value);
    reduced.setStep(command.step);
    reduced.setNormSquared(*replica.norm_squared);
  });
}

void RankState::carry_out(const plans::SendValidated& command) {
  const HeldReplica& replica = held.at(command.stage);
  const gpu::StageModel& model = *replica.parts.model;
  report([&](auto body) {
    auto validated = body.initValidated();
    validated.setReplica(replica.parts.id.value);
    validated.setStep(command.step);
    validated.setLossSum(model.loss_sum());
    validated.setLossTokens(static_cast<uint64_t>(model.loss_tokens()));
  });
}

void RankState::on_shard_written(const ShardWritten& written) {
  const std::vector<gpu::SavedFile> files = written.files.value_or(std::vector<gpu::SavedFile>());
  report([&](auto body) {
    auto saved = body.initShardSaved();
    saved.setStage(static_cast<uint32_t>(written.stage));
    saved.setStep(written.steps_done);
    saved.setError(std::string(written.files.status().message()));
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

void RankState::record(int32_t stage, const std::string& slice, uint8_t track, uint64_t start_us,
                       uint64_t end_us, int32_t microbatch) {
  if (!profiles || end_us < start_us) return;
  slices[stage].push_back({slice, track, start_us, end_us - start_us, microbatch});
}

void RankState::send_timings(uint64_t step) {
  for (const auto& [stage, own] : slices) {
    report([&](auto body) {
      auto timings = body.initTimings();
      timings.setReplica(held.at(stage).parts.id.value);
      timings.setStep(step);
      timings.setStaleness(held.at(stage).staleness);
      auto list = timings.initSlices(static_cast<unsigned>(own.size()));
      for (unsigned i = 0; i < own.size(); ++i) {
        list[i].setName(own[i].name);
        list[i].setTrack(own[i].track);
        list[i].setStartUs(
            static_cast<uint64_t>(static_cast<int64_t>(own[i].start_us) + clock_offset_us));
        list[i].setDurationUs(own[i].duration_us);
        list[i].setMicrobatch(own[i].microbatch);
      }
    });
  }
  slices.clear();
}

}  // namespace skein::actors
