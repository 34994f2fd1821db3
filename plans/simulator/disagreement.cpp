#include "plans/simulator/disagreement.hpp"

namespace skein::plans {

Disagreement::Disagreement(const ColumnLayout& layout, double warm_up_us)
    : layout_(layout),
      warm_up_us_(warm_up_us),
      weights_(layout.columns, std::vector<double>(layout.columns)),
      total_(layout.columns),
      has_gradient_(layout.columns) {}

bool Disagreement::advance(double now_us) {
  is_measuring_ = now_us >= warm_up_us_;
  return true;
}

void Disagreement::on_forward_start(ReplicaId replica, uint64_t /*step*/) {
  if (!is_measuring_ || layout_.stage_of(replica) > 0) return;
  const std::vector<double>& own = weights_[layout_.column_of(replica)];
  for (uint32_t c = 0; c < layout_.columns; ++c) {
    const double apart = own[c] - total_[c] / layout_.columns;
    sum_ += apart * apart;
  }
  ++forwards_;
}

void Disagreement::on_gradient(ReplicaId replica, uint64_t /*step*/) {
  if (layout_.stage_of(replica) == 0) has_gradient_[layout_.column_of(replica)] = true;
}

/// A gradient that is reduced moves everybody alike, so it moves nobody apart.
void Disagreement::on_group_start(const GroupStart& start) {
  if (start.stage > 0) return;
  for (const GroupMember& member : start.members) {
    const uint32_t column = layout_.column_of(member.replica);
    if (!has_gradient_[column]) continue;
    has_gradient_[column] = false;
    if (start.combination == Combination::kReduceGradients) continue;
    weights_[column][column] += 1;
    total_[column] += 1;
  }
  if (start.combination != Combination::kAverageWeights) return;
  auto& put_in = put_in_[start.number];
  for (const GroupMember& member : start.members) {
    put_in.push_back(weights_[layout_.column_of(member.replica)]);
  }
}

/// What passive members have done meanwhile stays on top.
void Disagreement::on_group_end(const GroupStart& start, bool ok) {
  const auto group = put_in_.extract(start.number);
  if (!ok || group.empty()) return;
  std::vector<double> average(layout_.columns);
  for (size_t m = 0; m < start.members.size(); ++m) {
    for (uint32_t c = 0; c < layout_.columns; ++c) {
      average[c] += start.members[m].weight * group.mapped()[m][c];
    }
  }
  for (size_t m = 0; m < start.members.size(); ++m) {
    std::vector<double>& own = weights_[layout_.column_of(start.members[m].replica)];
    for (uint32_t c = 0; c < layout_.columns; ++c) {
      const double added = average[c] - group.mapped()[m][c];
      own[c] += added;
      total_[c] += added;
    }
  }
}

}  // namespace skein::plans
