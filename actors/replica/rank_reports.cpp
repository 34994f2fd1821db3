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
  plans::ReadyReport ready;
  ready.replica = replica.parts.id;
  ready.step = command.step;
  ready.samples = static_cast<uint32_t>(replica.rows.count * config.plan.microbatch_count);
  ready.loss_sum = model.has_head() ? model.loss_sum() : 0;
  ready.loss_tokens = model.has_head() ? static_cast<uint64_t>(model.loss_tokens()) : 0;
  ready.needs_groups = !replica.parts.groups.empty();
  ready.norm_squared = *replica.norm_squared;
  ready.busy_us = replica.busy_us;
  ready.step_us = replica.ready_us - step_start_us;
  ready.stash_peak = replica.stash_peak;
  ready.snapshot_us = replica.snapshot_us;
  report(ready);
  replica.busy_us = 0;
  replica.stash_peak = replica.stashes;
}

void RankState::carry_out(const plans::SendReduced& command) {
  const HeldReplica& replica = held.at(command.stage);
  report(net::Reduced{replica.parts.id, command.step, *replica.norm_squared});
}

void RankState::carry_out(const plans::SendValidated& command) {
  const HeldReplica& replica = held.at(command.stage);
  const gpu::StageModel& model = *replica.parts.model;
  report(net::Validated{replica.parts.id, command.step, model.loss_sum(),
                        static_cast<uint64_t>(model.loss_tokens())});
}

void RankState::on_shard_written(const ShardWritten& written) {
  net::ShardSaved saved;
  saved.stage = written.stage;
  saved.step = written.steps_done;
  saved.files = written.files.value_or(std::vector<gpu::SavedFile>());
  saved.error = std::string(written.files.status().message());
  report(std::move(saved));
}

void RankState::record(int32_t stage, const std::string& slice, uint8_t track, uint64_t start_us,
                       uint64_t end_us, int32_t microbatch) {
  if (!profiles || end_us < start_us) return;
  slices[stage].push_back({slice, track, start_us, end_us - start_us, microbatch});
}

void RankState::send_timings(uint64_t step) {
  for (auto& [stage, own] : slices) {
    for (SliceReport& slice : own) {
      // The coordinator's clock may be so far behind ours that a slice began before its zero.
      const int64_t start_us = static_cast<int64_t>(slice.start_us) + clock_offset_us;
      slice.start_us = static_cast<uint64_t>(std::max<int64_t>(start_us, 0));
    }
    const HeldReplica& replica = held.at(stage);
    report(net::Timings{replica.parts.id, step, std::move(own), replica.staleness});
  }
  slices.clear();
}

}  // namespace skein::actors
