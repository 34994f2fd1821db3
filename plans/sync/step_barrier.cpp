#include "plans/sync/step_barrier.hpp"

#include <algorithm>

namespace skein::plans {

uint64_t StepBarrier::rounds_begun() const {
  return *std::max_element(begun_.begin(), begun_.end());
}

void StepBarrier::enter(uint32_t pipeline, uint64_t steps) {
  entries_[pipeline] = {rounds_begun(), steps};
}

std::map<uint32_t, uint64_t> StepBarrier::close() {
  last_ = rounds_begun();
  std::map<uint32_t, uint64_t> steps;
  for (const auto& [pipeline, entry] : entries_) {
    steps[pipeline] = entry.steps_before + (last_ - entry.first_round);
  }
  std::erase_if(entries_, [this](const auto& each) { return each.second.first_round >= last_; });
  return steps;
}

bool StepBarrier::is_over() const {
  if (!is_closed()) return false;
  return entries_.empty() || std::all_of(begun_.begin(), begun_.end(),
                                         [this](uint64_t begun) { return begun >= last_; });
}

void StepBarrier::skip_empty_rounds(uint32_t stage) {
  if (entries_.empty()) return;
  uint64_t first = UINT64_MAX;
  for (const auto& [pipeline, entry] : entries_) first = std::min(first, entry.first_round);
  begun_[stage] = std::max(begun_[stage], first);
}

std::optional<std::vector<uint32_t>> StepBarrier::begin_round(uint32_t stage,
                                                              const ReplicaTable& table) {
  skip_empty_rounds(stage);
  const uint64_t round = begun_[stage];
  if (round >= last_) return std::nullopt;
  std::vector<uint32_t> pipelines;
  for (const auto& [pipeline, entry] : entries_) {
    if (entry.first_round > round) continue;
    const uint64_t steps = entry.steps_before + (round - entry.first_round);
    if (!table.is_waiting(stage, pipeline) || table.steps(stage, pipeline) != steps) {
      return std::nullopt;
    }
    pipelines.push_back(pipeline);
  }
  if (pipelines.empty()) return std::nullopt;
  ++begun_[stage];
  return pipelines;
}

}  // namespace skein::plans
