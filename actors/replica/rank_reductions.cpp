// What a rank's replicas add up with those of other workers, bucket by bucket.

#include <algorithm>

#include "actors/replica/rank.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

bool is_in(const HeldReplica& replica, plans::GroupId group) {
  const auto& groups = replica.parts.groups;
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

HeldReplica& member_of(plans::GroupId group, std::map<int32_t, HeldReplica>& held) {
  const auto member = std::find_if(held.begin(), held.end(),
                                   [&](const auto& each) { return is_in(each.second, group); });
  SKEIN_CHECK(member != held.end()) << "no replica of group " << group.value << " is here";
  return member->second;
}

}  // namespace

/// A tied gradient is one parameter, which the first stage completes last of all.
plans::GroupRole RankState::role_in(plans::GroupId group, const HeldReplica& replica) const {
  if (config.plan.groups[group.value].scope == plans::GroupScope::kTied) return {group, 1};
  return {group, static_cast<int32_t>(replica.buckets.size())};
}

/// Groups and links on the device take turns; the other groups have a thread and connections each,
/// and wait for no other.
void RankState::carry_out(const plans::RunReduction& command) {
  if (!config.device_groups.contains(command.group)) return reduce(command);
  expect_operations(command.step);
  const plans::CollectiveKey key = collective_key(command.group, command.step, command.bucket);
  reductions_ready[key] = command;
  begin_operation(order.on_ready(key));
}

plans::CollectiveKey RankState::collective_key(plans::GroupId group, uint64_t step,
                                               int32_t bucket) const {
  return {step, places.groups[group.value], bucket};
}

void RankState::expect_operations(uint64_t step) {
  if (step < ordered_until) return;
  ordered_until = step + 1;
  for (const auto& [stage, replica] : held) {
    for (plans::GroupId group : replica.parts.groups) {
      if (!config.device_groups.contains(group)) continue;
      const int32_t count = role_in(group, replica).bucket_count;
      for (int32_t i = 0; i < count; ++i) order.expect(collective_key(group, step, i));
    }
    expect_transfers(replica, step);
  }
  await_inputs(step);
}

void RankState::begin_operation(const std::optional<plans::CollectiveKey>& key) {
  if (!key) return;
  if (transfers.contains(*key)) return transfer(*key);
  const auto ready = reductions_ready.extract(*key);
  SKEIN_CHECK(!ready.empty()) << "an operation begins that is not ready";
  reduce(ready.mapped());
}

void RankState::reduce(const plans::RunReduction& command) {
  HeldReplica& replica = member_of(command.group, held);
  gpu::StageModel& model = *replica.parts.model;
  const bool on_device = config.device_groups.contains(command.group);
  std::span<float> values = on_device ? model.device_tied_gradients() : model.tied_gradients();
  if (config.plan.groups[command.group.value].scope == plans::GroupScope::kStage) {
    const plans::GradientBucket& bucket = replica.buckets[static_cast<size_t>(command.bucket)];
    values = on_device ? model.device_stage_gradients() : model.stage_gradients();
    values = values.subspan(static_cast<size_t>(bucket.begin), static_cast<size_t>(bucket.count));
  }
  reduce_start_us[command.group] = now_us();
  ++reductions;
  self->send(config.groups.at(command.group),
             ReductionRequest{command.step, command.bucket, values}, ReductionListener(self));
  reach(config.fail_point, FailPlace::kDuringReduction);
}

void RankState::on_reduction_done(const ReductionDone& done) {
  --reductions;
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  if (config.device_groups.contains(done.group)) {
    begin_operation(order.on_end(collective_key(done.group, done.step, done.bucket)));
  }
  const plans::ProgramOutcome outcome =
      program->on_group_reduced(done.group, done.step, done.bucket);
  if (!drops.note(outcome)) return;
  record(member_of(done.group, held).stage, "reduce", 3, reduce_start_us[done.group], now_us(), -1);
  apply(outcome.decisions());
}

/// What crosses by way of the host: what a group adds up there.
gpu::GradientParts RankState::host_parts(const HeldReplica& replica) const {
  gpu::GradientParts parts{false, false};
  for (plans::GroupId group : replica.parts.groups) {
    if (config.device_groups.contains(group)) continue;
    const bool is_tied = config.plan.groups[group.value].scope == plans::GroupScope::kTied;
    (is_tied ? parts.tied : parts.stage) = true;
  }
  return parts;
}

}  // namespace skein::actors
