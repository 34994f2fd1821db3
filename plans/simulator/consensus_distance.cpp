#include "plans/simulator/consensus_distance.hpp"

#include <utility>

namespace skein::plans {

ConsensusDistance::ConsensusDistance(const PipelineLayout& layout, double warm_up_us,
                                     std::vector<uint64_t> claim_samples)
    : layout_(layout),
      warm_up_us_(warm_up_us),
      claim_samples_(std::move(claim_samples)),
      weights_(layout.pipelines, std::vector<double>(layout.pipelines)),
      total_(layout.pipelines),
      has_gradient_(layout.pipelines) {}

bool ConsensusDistance::advance(double now_us) {
  is_measuring_ = now_us >= warm_up_us_;
  return true;
}

void ConsensusDistance::on_forward_start(ReplicaId replica, uint64_t /*step*/) {
  if (!is_measuring_ || layout_.stage_of(replica) > 0) return;
  const std::vector<double>& own = weights_[layout_.pipeline_of(replica)];
  for (uint32_t c = 0; c < layout_.pipelines; ++c) {
    const double apart = own[c] - total_[c] / layout_.pipelines;
    sum_ += apart * apart;
  }
  ++forwards_;
}

void ConsensusDistance::on_gradient(ReplicaId replica, uint64_t /*step*/) {
  if (layout_.stage_of(replica) == 0) has_gradient_[layout_.pipeline_of(replica)] = true;
}

/// A gradient that is reduced moves everybody alike, so it moves nobody apart.
void ConsensusDistance::on_group_start(const GroupStart& start) {
  if (start.stage > 0) return;
  for (const GroupMember& member : start.members) {
    const uint32_t pipeline = layout_.pipeline_of(member.replica);
    if (!has_gradient_[pipeline]) continue;
    has_gradient_[pipeline] = false;
    if (start.average == Average::kReduceGradients) continue;
    weights_[pipeline][pipeline] += 1;
    total_[pipeline] += 1;
  }
  if (start.average != Average::kAverageWeights) return;
  auto& contribution = contributions_[start.number];
  for (const GroupMember& member : start.members) {
    contribution.push_back(weights_[layout_.pipeline_of(member.replica)]);
  }
}

/// What non-blocking members have done meanwhile stays on top.
void ConsensusDistance::on_group_end(const GroupStart& start, bool ok) {
  const auto group = contributions_.extract(start.number);
  if (!ok || group.empty()) return;
  // As `LocalUpdates` weighs them: the sum stays as it was.
  std::vector<double> weights;
  double before = 0, after = 0;
  for (const GroupMember& member : start.members) {
    const uint32_t pipeline = layout_.pipeline_of(member.replica);
    const uint64_t samples = claim_samples_.empty() ? 1 : claim_samples_[pipeline];
    weights.push_back(member.weight * static_cast<double>(samples));
    before += member.weight;
    after += weights.back();
  }
  std::vector<double> average(layout_.pipelines);
  for (size_t m = 0; m < start.members.size(); ++m) {
    for (uint32_t c = 0; c < layout_.pipelines; ++c) {
      average[c] += weights[m] * before / after * group.mapped()[m][c];
    }
  }
  for (size_t m = 0; m < start.members.size(); ++m) {
    std::vector<double>& own = weights_[layout_.pipeline_of(start.members[m].replica)];
    for (uint32_t c = 0; c < layout_.pipelines; ++c) {
      const double added = average[c] - group.mapped()[m][c];
      own[c] += added;
      total_[c] += added;
    }
  }
}

void ConsensusDistance::on_round_end() {
  for (uint32_t c = 0; c < layout_.pipelines; ++c) {
    for (std::vector<double>& own : weights_) own[c] = total_[c] / layout_.pipelines;
  }
  has_gradient_.assign(layout_.pipelines, false);
}

}  // namespace skein::plans
