#include "actors/replica/reductions.hpp"

#include <utility>

#include "plans/base/check.hpp"

namespace skein::actors {

Reductions::Reductions(Options options, const StageReplicas& replicas, DeviceOperations& operations)
    : options_(std::move(options)), replicas_(replicas), operations_(operations) {}

plans::CollectiveKey Reductions::key_of(plans::GroupId group, uint64_t step, int32_t bucket) const {
  return {step, operations_.places().groups.at(group), bucket};
}

void Reductions::expect(uint64_t step) {
  for (const auto& [stage, replica] : replicas_) {
    for (plans::GroupId group : replica.parts.groups) {
      if (!options_.device_groups.contains(group)) continue;
      const int32_t count = group_role(options_.plan, replica, group).bucket_count;
      for (int32_t i = 0; i < count; ++i) operations_.expect(key_of(group, step, i));
    }
  }
}

void Reductions::start(const plans::RunReduction& command) {
  if (!options_.device_groups.contains(command.group)) return reduce(command);
  const plans::CollectiveKey key = key_of(command.group, command.step, command.bucket);
  ready_[key] = command;
  operations_.on_ready(key);
}

bool Reductions::begin(const plans::CollectiveKey& key) {
  const auto ready = ready_.extract(key);
  if (ready.empty()) return false;
  reduce(ready.mapped());
  return true;
}

void Reductions::reduce(const plans::RunReduction& command) {
  const StageReplica& replica = member_of(replicas_, command.group);
  gpu::StageModel& model = *replica.parts.model;
  const bool on_device = options_.device_groups.contains(command.group);
  std::span<float> values = on_device ? model.device_tied_gradients() : model.tied_gradients();
  if (plans::group_at(options_.plan, command.group).scope == plans::GroupScope::kStage) {
    const plans::GradientBucket& bucket = replica.buckets[static_cast<size_t>(command.bucket)];
    values = on_device ? model.device_stage_gradients() : model.stage_gradients();
    const int64_t floats = model.floats_per_gradient();
    values = values.subspan(static_cast<size_t>(floats * bucket.begin),
                            static_cast<size_t>(floats * bucket.count));
  }
  const bool is_alone =
      running_.emplace(command.group, Running{command.step, command.bucket, options_.now_us()})
          .second;
  SKEIN_CHECK(is_alone) << "group " << command.group.value << " runs twice";
  options_.reduce(command.group, ReductionRequest{command.step, command.bucket, values});
}

std::optional<uint64_t> Reductions::on_end(const ReductionDone& done) {
  const auto found = running_.find(done.group);
  if (found == running_.end() || found->second.step != done.step ||
      found->second.bucket != done.bucket) {
    return std::nullopt;
  }
  const uint64_t start_us = found->second.start_us;
  running_.erase(found);
  return start_us;
}

void Reductions::pass_turn(const ReductionDone& done) {
  if (!options_.device_groups.contains(done.group)) return;
  operations_.on_end(key_of(done.group, done.step, done.bucket));
}

gpu::GradientParts Reductions::host_parts(const StageReplica& replica) const {
  gpu::GradientParts parts{false, false};
  for (plans::GroupId group : replica.parts.groups) {
    if (options_.device_groups.contains(group)) continue;
    const bool is_tied = plans::group_at(options_.plan, group).scope == plans::GroupScope::kTied;
    (is_tied ? parts.tied : parts.stage) = true;
  }
  return parts;
}

}  // namespace skein::actors
