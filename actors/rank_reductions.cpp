// What a rank's replicas add up with those of other workers, bucket by bucket.

#include <algorithm>

#include "actors/rank.hpp"
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
plans::RankProgram::GroupRole RankState::role_in(plans::GroupId group,
                                                 const HeldReplica& replica) const {
  if (config.plan.groups[group.value].scope == plans::GroupScope::kTied) return {group, 1};
  return {group, static_cast<int32_t>(replica.buckets.size())};
}

void RankState::carry_out(const plans::RunReduction& command) {
  HeldReplica& replica = member_of(command.group, held);
  std::span<float> values = replica.parts.model->tied_gradients();
  if (config.plan.groups[command.group.value].scope == plans::GroupScope::kStage) {
    const plans::GradientBucket& bucket = replica.buckets[static_cast<size_t>(command.bucket)];
    values = replica.parts.model->stage_gradients().subspan(static_cast<size_t>(bucket.begin),
                                                            static_cast<size_t>(bucket.count));
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
  const uint64_t dropped = program->dropped();
  const plans::RankCommands commands =
      program->on_group_reduced(done.group, done.step, done.bucket);
  if (program->dropped() != dropped) return;
  record(member_of(done.group, held).stage, "reduce", 3, reduce_start_us[done.group], now_us(), -1);
  apply(commands);
}

}  // namespace skein::actors
