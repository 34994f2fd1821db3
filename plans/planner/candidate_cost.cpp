#include "plans/planner/candidate_cost.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

/// A scenario that slows a device for the whole run makes it a slower device.
std::vector<double> lasting_speeds(const ClusterSpec& cluster, const Scenario& scenario) {
  std::vector<double> speeds;
  for (const ClusterDevice& device : cluster.devices) speeds.push_back(device.speed);
  if (scenario.kind != Scenario::Kind::kH2 && scenario.kind != Scenario::Kind::kH5) return speeds;
  for (int32_t device : scenario.devices) {
    if (device < 0 || static_cast<size_t>(device) >= speeds.size()) continue;
    speeds[static_cast<size_t>(device)] /= std::max(scenario.factor, 1e-3);
  }
  return speeds;
}

}  // namespace

CostModel::CostModel(const PlanRequest& request, const ClusterSpec& cluster)
    : request_(request),
      cluster_(cluster),
      sums_(request.profile),
      flows_(cluster),
      speed_(lasting_speeds(cluster, request.simulation.scenario)),
      card_us_(cluster.hosts.size(), 0.0) {}

double CostModel::reduced_bytes(const LayerRange& layers) const {
  const Profile& profile = request_.profile;
  const int64_t layer_count = sums_.layer_count();
  int64_t bytes = sums_.parameter_bytes(layers);
  if (layers.size() < layer_count) {  // The tied parameter has a group of its own.
    if (layers.begin == 0) bytes -= profile.tied_bytes;
    if (layers.end == layer_count) bytes -= profile.tied_bytes;
  }
  return profile.gradient_factor * static_cast<double>(std::max<int64_t>(bytes, 0));
}

FlowTimes::Duration CostModel::ring_cost(const std::vector<int32_t>& devices, double bytes) {
  const size_t count = devices.size();
  if (count < 2 || bytes <= 0) return {};
  scratch_.clear();
  const double sent = 2.0 * static_cast<double>(count - 1) / static_cast<double>(count) * bytes;
  for (size_t i = 0; i < count; ++i) {
    scratch_.push_back({devices[i], devices[(i + 1) % count], sent});
  }
  return flows_.together(scratch_);
}

double CostModel::reduction_tail_us(const LayerRange& layers, const CandidateRank& rank,
                                    const StageCost& cost) {
  if (!request_.simulation.bucketed_reduction || cost.reduce_us == 0) return cost.reduce_us;
  const double bytes = reduced_bytes(layers);
  const FlowTimes::Duration whole = ring_cost(rank.devices, bytes);
  const int64_t rows = rank.rows.front();
  const double stage_us = sums_.times(layers, rows).backward_us();
  double done_us = 0;
  for (int64_t layer = layers.end; layer-- > layers.begin;) {
    const double share = reduced_bytes({layer, layer + 1}) / bytes;
    if (share == 0) continue;
    const double passed_us = sums_.times({layer, layers.end}, rows).backward_us();
    const double ready_us = stage_us > 0 ? passed_us / stage_us * cost.backward_us : 0;
    done_us = std::max(done_us, ready_us) + share * whole.bytes_us + whole.latency_us;
  }
  return std::max(0.0, done_us - cost.backward_us);
}

StageCost CostModel::stage_cost(const LayerRange& layers, const CandidateRank& rank,
                                const CandidatePlan& candidate) {
  StageCost cost;
  const double parameters = static_cast<double>(sums_.parameter_bytes(layers));
  for (size_t r = 0; r < rank.devices.size(); ++r) {
    const LayerTimes times = sums_.times(layers, rank.rows[r]);
    const double speed_of = speed(rank.devices[r]);
    const double again_us = candidate.recompute ? times.forward_us : 0;
    cost.forward_us = std::max(cost.forward_us, times.forward_us / speed_of);
    cost.backward_us = std::max(cost.backward_us, (times.backward_us() + again_us) / speed_of);
    cost.input_us = std::max(cost.input_us, (times.backward_input_us + again_us) / speed_of);
    cost.weight_us = std::max(cost.weight_us, times.backward_weight_us / speed_of);
    cost.update_us =
        std::max(cost.update_us, request_.profile.update_us_per_byte * parameters / speed_of);
  }
  cost.reduce_us = ring_cost(rank.devices, reduced_bytes(layers)).total_us();
  cost.tail_us = reduction_tail_us(layers, rank, cost);
  return cost;
}

CutCost CostModel::cut_cost(int64_t layer, const CandidateRank& from, const CandidateRank& to) {
  return flows_between(from, to, static_cast<double>(cut_row_bytes(request_.profile, layer)));
}

CutCost CostModel::flows_between(const CandidateRank& from, const CandidateRank& to,
                                 double row_bytes) {
  scratch_.clear();
  size_t b = 0;
  int64_t left_b = to.rows.empty() ? 0 : to.rows[0];
  for (size_t a = 0; a < from.devices.size(); ++a) {
    int64_t left_a = from.rows[a];
    while (left_a > 0 && b < to.devices.size()) {
      const int64_t rows = std::min(left_a, left_b);
      scratch_.push_back({from.devices[a], to.devices[b], static_cast<double>(rows) * row_bytes});
      left_a -= rows;
      left_b -= rows;
      if (left_b == 0 && ++b < to.devices.size()) left_b = to.rows[b];
    }
  }
  CutCost cost;
  static_cast<FlowTimes::Duration&>(cost) = flows_.together(scratch_, &cost.cards);
  return cost;
}

LayerTimes CostModel::even_times(const LayerRange& layers, int64_t rows, int64_t count,
                                 double speed) {
  LayerTimes times = sums_.times(layers, (rows + count - 1) / count);
  times.forward_us /= speed;
  times.backward_input_us /= speed;
  times.backward_weight_us /= speed;
  return times;
}

CandidateCost CostModel::cost(const CandidatePlan& candidate) {
  CandidateCost total;
  const int32_t S = candidate.stage_count();
  for (int32_t s = 0; s < S; ++s) {
    const int32_t known = known_stage(candidate, s);
    total.stages.push_back(known >= 0
                               ? last_cost_.stages[static_cast<size_t>(known)]
                               : stage_cost(candidate.layers(s), candidate.rank(s), candidate));
    if (s == 0) continue;
    const bool is_known = known > 0 && known_stage(candidate, s - 1) == known - 1;
    total.cuts.push_back(
        is_known ? last_cost_.cuts[static_cast<size_t>(known) - 1]
                 : cut_cost(candidate.layers(s).begin, candidate.rank(s - 1), candidate.rank(s)));
  }
  if (request_.profile.tied_bytes > 0 && S > 1) {
    std::vector<int32_t> members = candidate.rank(0).devices;
    const std::vector<int32_t>& last = candidate.rank(S - 1).devices;
    members.insert(members.end(), last.begin(), last.end());
    total.tied = ring_cost(members, request_.profile.gradient_factor *
                                        static_cast<double>(request_.profile.tied_bytes));
  }
  total.card_us = busiest_card_us(total.cuts);
  last_candidate_ = candidate;
  last_cost_ = total;
  return total;
}

double CostModel::busiest_card_us(const std::vector<CutCost>& cuts) {
  double busiest_us = 0;
  for (const CutCost& cut : cuts) {
    for (const FlowTimes::CardLoad& card : cut.cards) {
      double& sum_us = card_us_[static_cast<size_t>(card.host)];
      sum_us += card.busy_us;
      busiest_us = std::max(busiest_us, sum_us);
    }
  }
  for (const CutCost& cut : cuts) {
    for (const FlowTimes::CardLoad& card : cut.cards) card_us_[static_cast<size_t>(card.host)] = 0;
  }
  return busiest_us;
}

int32_t CostModel::known_stage(const CandidatePlan& candidate, int32_t stage) const {
  if (candidate.recompute != last_candidate_.recompute) return -1;
  const int32_t shift = last_candidate_.stage_count() - candidate.stage_count();
  for (const int32_t other : {stage, stage + shift}) {
    if (other < 0 || other >= last_candidate_.stage_count()) continue;
    if (last_candidate_.layers(other) == candidate.layers(stage) &&
        last_candidate_.rank(other) == candidate.rank(stage)) {
      return other;
    }
  }
  return -1;
}

bool is_memory_limited(const ClusterSpec& cluster) {
  return std::any_of(cluster.devices.begin(), cluster.devices.end(),
                     [](const ClusterDevice& device) { return device.memory_bytes > 0; });
}

ClusterSpec equalised(const ClusterSpec& cluster) {
  ClusterSpec equal = cluster;
  equal.links.clear();
  double speed = 0;
  for (const ClusterDevice& device : cluster.devices) speed += device.speed;
  for (ClusterDevice& device : equal.devices) {
    device.speed = speed / static_cast<double>(cluster.devices.size());
  }
  LinkSpeed inside{0, 0};
  LinkSpeed network{0, 0};
  const auto hosts = static_cast<double>(cluster.hosts.size());
  for (const ClusterHost& host : cluster.hosts) {
    inside.bytes_per_second += host.inside.bytes_per_second / hosts;
    inside.latency_us += host.inside.latency_us / hosts;
    network.bytes_per_second += host.network.bytes_per_second / hosts;
    network.latency_us += host.network.latency_us / hosts;
  }
  for (ClusterHost& host : equal.hosts) {
    host.inside = inside;
    host.network = network;
  }
  return equal;
}

}  // namespace skein::plans
