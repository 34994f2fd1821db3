#include "plans/simulator/gradient_rings.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

int32_t device_of(const Plan& plan, ReplicaId replica) {
  return static_cast<int32_t>(replica_of(plan, replica).worker.value) - 1;
}

std::vector<GradientRings::Edge> ring_edges(const Plan& plan, const ClusterSpec& cluster,
                                            const std::vector<ReplicaId>& members) {
  std::vector<GradientRings::Edge> edges;
  for (size_t i = 0; i < members.size() && members.size() > 1; ++i) {
    const int32_t from = device_of(plan, members[i]);
    const int32_t to = device_of(plan, members[(i + 1) % members.size()]);
    edges.push_back({from == to, path_between(cluster, from, to)});
  }
  return edges;
}

/// Shares of the time after which a backward that goes from the last layer to the first one has
/// passed each layer.
std::vector<double> passing_shares(const std::vector<double>& layer_us) {
  double total = 0;
  for (double us : layer_us) total += us;
  std::vector<double> shares(layer_us.size(), 1.0);
  double passed = 0;
  for (size_t l = layer_us.size(); l-- > 1;) {
    passed += layer_us[l];
    shares[l] = total > 0 ? passed / total : 1.0;
  }
  return shares;  // The first layer is passed at the end, exactly.
}

}  // namespace

GradientRings::GradientRings(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                             bool bucketed) {
  groups_of_.resize(static_cast<size_t>(replica_count(plan)));
  for (const ReductionGroup& group : plan.groups) {
    for (ReplicaId member : group.members) {
      groups_of_[member.value].push_back(static_cast<int32_t>(groups_.size()));
    }
    Group& out = groups_.emplace_back();
    out.edges = ring_edges(plan, cluster, group.members);
    out.member_count = static_cast<int32_t>(group.members.size());
    add_shares(plan, profile, group, bucketed, out);
  }
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      std::vector<double> whole, weights_only;
      for (int64_t l = stage.layers.begin; l < stage.layers.end; ++l) {
        const LayerTimes times = layer_times(profile, l, replica.rows.count);
        whole.push_back(times.backward_us() + (plan.recompute ? times.forward_us : 0));
        weights_only.push_back(times.backward_weight_us);
      }
      passing_.push_back({passing_shares(whole), passing_shares(weights_only)});
      first_layer_.push_back(stage.layers.begin);
      end_layer_.push_back(stage.layers.end);
    }
  }
  begin_step();
}

void GradientRings::add_shares(const Plan& plan, const Profile& profile,
                               const ReductionGroup& group, bool bucketed, Group& out) const {
  auto add = [&](int64_t layer, int64_t bytes) {
    out.share_layer.push_back(layer);
    out.share_bytes.push_back(profile.gradient_factor * static_cast<double>(bytes));
  };
  const auto last = static_cast<int64_t>(profile.layers.size()) - 1;
  const LayerRange& layers = plan.stages[static_cast<size_t>(group.stage)].layers;
  if (group.scope == GroupScope::kTied) {
    add(0, profile.tied_bytes);
  } else if (!bucketed) {
    const bool has_one_end = layers.contains(0) != layers.contains(last);
    add(layers.begin, parameter_bytes(profile, layers) - (has_one_end ? profile.tied_bytes : 0));
  } else {
    for (int64_t l = layers.end - 1; l >= layers.begin; --l) {
      // A tied gradient goes with its own group or, in a stage with both ends, with layer 0.
      const bool is_elsewhere = last > 0 && (l == last || (l == 0 && !layers.contains(last)));
      add(l, parameter_bytes(profile, {l, l + 1}) - (is_elsewhere ? profile.tied_bytes : 0));
    }
  }
  out.ready_us.resize(out.share_bytes.size());
}

void GradientRings::begin_step() {
  for (Group& group : groups_) {
    group.waiting_count = group.member_count;
    group.share = 0;
    std::fill(group.ready_us.begin(), group.ready_us.end(), 0.0);
  }
}

/// When the backward of a layer is done on `replica`; of a layer of another stage, as for a tied
/// parameter's group, the whole backward counts.
double GradientRings::passed_us(ReplicaId replica, ActionType type, int64_t layer, double start_us,
                                double end_us) const {
  const size_t r = replica.value;
  if (layer <= first_layer_[r] || layer >= end_layer_[r]) return end_us;
  const std::vector<double>& shares =
      type == ActionType::kBackwardWeight ? passing_[r].weights_only : passing_[r].whole;
  return start_us + (end_us - start_us) * shares[static_cast<size_t>(layer - first_layer_[r])];
}

void GradientRings::on_last_backward(ReplicaId replica, ActionType type, double start_us,
                                     double end_us, std::vector<ShareStart>& starts) {
  for (int32_t id : groups_of_[replica.value]) {
    Group& group = groups_[static_cast<size_t>(id)];
    for (size_t share = 0; share < group.ready_us.size(); ++share) {
      const double passed = passed_us(replica, type, group.share_layer[share], start_us, end_us);
      group.ready_us[share] = std::max(group.ready_us[share], passed);
    }
    if (--group.waiting_count == 0) starts.push_back({id, group.ready_us.front()});
  }
}

double GradientRings::edge_bytes(int32_t group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  const double r = g.member_count;
  return 2 * (r - 1) / r * g.share_bytes[g.share];
}

const std::vector<GradientRings::Edge>& GradientRings::edges(int32_t group) const {
  return groups_[static_cast<size_t>(group)].edges;
}

std::optional<double> GradientRings::on_share_reduced(int32_t group, double now_us) {
  Group& g = groups_[static_cast<size_t>(group)];
  if (++g.share == g.share_bytes.size()) return std::nullopt;
  return std::max(now_us, g.ready_us[g.share]);
}

}  // namespace skein::plans
