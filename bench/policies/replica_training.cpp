#include "bench/policies/replica_training.hpp"

#include <algorithm>
#include <cmath>

#include "plans/base/check.hpp"

namespace skein::bench {
namespace {

using plans::Average;
using plans::GroupMember;
using plans::GroupStart;
using plans::ReplicaId;

constexpr double kMomentum = 0.9, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

}  // namespace

ReplicaTraining::ReplicaTraining(Task& task, const TrainingOptions& options)
    : task_(task),
      options_(options),
      supply_(task.skewed_order(), {.pipelines = options.layout.pipelines,
                                    .batch = options.batch,
                                    .is_skewed = options.is_skewed,
                                    .seed = options.seed}),
      replicas_(options.layout.replica_count()),
      has_served_(options.layout.stages),
      flows_(options.layout.pipelines) {
  SKEIN_CHECK(task.stage_count() == options.layout.stages) << task.stage_count();
  for (uint32_t stage = 0; stage < options.layout.stages; ++stage) {
    servers_.push_back(task.initial_weights(stage, options.seed));
    for (uint32_t pipeline = 0; pipeline < options.layout.pipelines; ++pipeline) {
      Replica& replica = replicas_[options.layout.replica(stage, pipeline).value];
      replica.weights = replica.taken = servers_.back();
      replica.gradient.resize(replica.weights.size());
      replica.moment1.resize(replica.weights.size());
      replica.moment2.resize(replica.weights.size());
    }
  }
}

bool ReplicaTraining::advance(double now_us) {
  while (!is_over_ && next_evaluation_us_ <= now_us) {
    evaluate(next_evaluation_us_);
    next_evaluation_us_ += options_.evaluate_every_us;
  }
  return !is_over_;
}

void ReplicaTraining::on_forward_start(ReplicaId id, uint64_t step) {
  const uint32_t pipeline = options_.layout.pipeline_of(id);
  if (options_.layout.stage_of(id) == 0) {
    Flow& flow = flows_[pipeline][step];
    flow.samples = supply_.take(pipeline, step);
    flow.outputs.resize(options_.layout.stages);
    flow.gradients.resize(options_.layout.stages);
  }
  Replica& replica = replicas_[id.value];
  update(replica);
  replica.stash.push_back({step, replica.weights});
}

void ReplicaTraining::on_forward_end(ReplicaId id, uint64_t step) {
  const uint32_t stage = options_.layout.stage_of(id);
  if (stage + 1 == options_.layout.stages) return;  // Its backward makes the loss, too.
  Flow& flow = flows_[options_.layout.pipeline_of(id)].at(step);
  const Stashed& stashed = replicas_[id.value].stash.back();
  SKEIN_CHECK(stashed.step == step) << stashed.step << " " << step;
  flow.outputs[stage] = task_.forward(stage, stashed.weights, flow.samples,
                                      stage > 0 ? flow.outputs[stage - 1] : std::vector<float>());
}

void ReplicaTraining::on_gradient(ReplicaId id, uint64_t step) {
  const uint32_t stage = options_.layout.stage_of(id);
  const uint32_t pipeline = options_.layout.pipeline_of(id);
  Replica& replica = replicas_[id.value];
  Flow& flow = flows_[pipeline].at(step);
  update(replica);
  SKEIN_CHECK(replica.stash.front().step == step) << id << " " << step;
  std::vector<float> input_gradient =
      task_.backward(stage, replica.stash.front().weights, flow.samples,
                     stage > 0 ? flow.outputs[stage - 1] : std::vector<float>(),
                     flow.gradients[stage], replica.gradient);
  replica.stash.pop_front();
  replica.has_gradient = true;
  if (stage > 0) {
    flow.gradients[stage - 1] = std::move(input_gradient);
    return;
  }
  samples_ += flow.samples.size();
  flows_[pipeline].erase(step);
  supply_.finish(pipeline, step);
}

void ReplicaTraining::update(Replica& replica) {
  if (!replica.has_gradient) return;  // It has done it, or computes: a non-blocking member.
  replica.has_gradient = false;
  const auto lr = static_cast<float>(options_.optimizer.lr);
  const size_t count = replica.weights.size();
  if (options_.optimizer.kind == OptimizerChoice::Kind::kMomentum) {
    for (size_t i = 0; i < count; ++i) {
      replica.moment1[i] = static_cast<float>(kMomentum) * replica.moment1[i] + replica.gradient[i];
      replica.weights[i] -= lr * replica.moment1[i];
    }
    return;
  }
  const auto t = static_cast<double>(++replica.updates);
  const auto correction1 = static_cast<float>(1 / (1 - std::pow(kBeta1, t)));
  const auto correction2 = static_cast<float>(1 / (1 - std::pow(kBeta2, t)));
  const auto beta1 = static_cast<float>(kBeta1), beta2 = static_cast<float>(kBeta2);
  for (size_t i = 0; i < count; ++i) {
    const float gradient = replica.gradient[i];
    float& moment1 = replica.moment1[i];
    float& moment2 = replica.moment2[i];
    moment1 = beta1 * moment1 + (1 - beta1) * gradient;
    moment2 = beta2 * moment2 + (1 - beta2) * gradient * gradient;
    replica.weights[i] -= lr * moment1 * correction1 /
                          (std::sqrt(moment2 * correction2) + static_cast<float>(kEpsilon));
  }
}

void ReplicaTraining::on_group_start(const GroupStart& start) {
  staleness_sum_ += static_cast<double>(start.staleness * start.members.size());
  member_count_ += start.members.size();
  if (start.average == Average::kReduceGradients) return;  // When all have been added up.
  for (const GroupMember& member : start.members) update(replicas_[member.replica.value]);
  if (start.average == Average::kAverageWeights) contribution(start);
}

void ReplicaTraining::on_group_end(const GroupStart& start, bool ok) {
  if (!ok) {
    contributions_.erase(start.number);
    return;
  }
  if (start.average == Average::kReduceGradients) reduce(start);
  if (start.average == Average::kAverageWeights) {
    average(start);
    contributions_.erase(start.number);
  }
  if (start.average == Average::kServer) serve(start);
}

void ReplicaTraining::reduce(const GroupStart& start) {
  std::vector<float> mean(replicas_[start.members[0].replica.value].weights.size());
  // The policy's weights add up gradients of the whole batch's mean; ours are of a pipeline
  // replica's mean.
  const float share = 1.0f / static_cast<float>(start.members.size());
  for (const GroupMember& member : start.members) {
    const std::vector<float>& gradient = replicas_[member.replica.value].gradient;
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += share * gradient[i];
  }
  for (const GroupMember& member : start.members) {
    Replica& replica = replicas_[member.replica.value];
    replica.gradient = mean;
    update(replica);
  }
}

void ReplicaTraining::contribution(const GroupStart& start) {
  std::vector<State> states = {&Replica::weights};
  if (start.averages_moments) {
    states.push_back(&Replica::moment1);
    states.push_back(&Replica::moment2);
  }
  for (const State state : states) {
    Contribution& each = contributions_[start.number].emplace_back(Contribution{state, {}});
    for (const GroupMember& member : start.members) {
      each.values.push_back(replicas_[member.replica.value].*state);
    }
  }
}

void ReplicaTraining::average(const GroupStart& start) {
  const auto stage = static_cast<uint32_t>(start.stage);
  const bool is_equal = std::all_of(
      start.members.begin(), start.members.end(),
      [&](const GroupMember& member) { return member.weight == start.members[0].weight; });
  const bool checks = options_.checks_means && is_equal;
  const std::vector<double> before = checks ? stage_sum(stage) : std::vector<double>();
  for (const Contribution& each : contributions_.at(start.number)) add_average(start, each);
  if (checks) check_mean(stage, before);
}

void ReplicaTraining::add_average(const GroupStart& start, const Contribution& contribution) {
  std::vector<float> sum(contribution.values[0].size());
  for (size_t m = 0; m < start.members.size(); ++m) {
    const auto share = static_cast<float>(start.members[m].weight);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * contribution.values[m][i];
  }
  for (size_t m = 0; m < start.members.size(); ++m) {
    std::vector<float>& own = replicas_[start.members[m].replica.value].*contribution.state;
    if (!start.members[m].is_nonblocking) {
      own = sum;
      continue;
    }
    for (size_t i = 0; i < sum.size(); ++i) own[i] += sum[i] - contribution.values[m][i];
  }
}

void ReplicaTraining::serve(const GroupStart& start) {
  const auto stage = static_cast<uint32_t>(start.stage);
  has_served_[stage] = true;
  for (const GroupMember& member : start.members) push(stage, member);
  for (const GroupMember& member : start.members) {
    Replica& replica = replicas_[member.replica.value];
    replica.weights = replica.taken = servers_[stage];
  }
}

void ReplicaTraining::push(uint32_t stage, const GroupMember& member) {
  std::vector<float>& server = servers_[stage];
  const Replica& replica = replicas_[member.replica.value];
  const auto share = static_cast<float>(member.weight);
  for (size_t i = 0; i < server.size(); ++i) {
    server[i] += share * (replica.weights[i] - replica.taken[i]);
  }
}

void ReplicaTraining::on_round_end() {
  const uint32_t pipelines = options_.layout.pipelines;
  for (uint32_t stage = 0; stage < options_.layout.stages; ++stage) {
    std::vector<ReplicaId> members;
    uint64_t updates = 0;
    for (uint32_t pipeline = 0; pipeline < pipelines; ++pipeline) {
      members.push_back(options_.layout.replica(stage, pipeline));
      update(replicas_[members.back().value]);
      updates += replicas_[members.back().value].updates;
      if (has_served_[stage]) push(stage, {members.back(), 0, 1.0 / pipelines});
    }
    take_mean(members, &Replica::weights);
    take_mean(members, &Replica::moment1);
    take_mean(members, &Replica::moment2);
    for (const ReplicaId member : members) {
      Replica& replica = replicas_[member.value];
      if (has_served_[stage]) replica.weights = servers_[stage];
      replica.taken = replica.weights;
      replica.updates = updates / pipelines;
    }
  }
}

void ReplicaTraining::take_mean(std::span<const ReplicaId> members, State state) {
  std::vector<float> mean((replicas_[members[0].value].*state).size());
  const float share = 1.0f / static_cast<float>(members.size());
  for (const ReplicaId member : members) {
    const std::vector<float>& own = replicas_[member.value].*state;
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += share * own[i];
  }
  for (const ReplicaId member : members) replicas_[member.value].*state = mean;
}

std::vector<double> ReplicaTraining::stage_sum(uint32_t stage) const {
  std::vector<double> sum(servers_[stage].size());
  for (uint32_t pipeline = 0; pipeline < options_.layout.pipelines; ++pipeline) {
    const Replica& replica = replicas_[options_.layout.replica(stage, pipeline).value];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += replica.weights[i];
  }
  return sum;
}

void ReplicaTraining::check_mean(uint32_t stage, const std::vector<double>& before) {
  const std::vector<double> after = stage_sum(stage);
  double most = 0, error = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    most = std::max(most, std::abs(before[i]));
    error = std::max(error, std::abs(after[i] - before[i]));
  }
  mean_error_ = std::max(mean_error_, error / std::max(most, 1e-30));
}

void ReplicaTraining::evaluate(double at_us) {
  std::vector<std::vector<float>> weights = servers_;
  for (uint32_t stage = 0; stage < options_.layout.stages; ++stage) {
    if (has_served_[stage]) continue;
    const std::vector<double> sum = stage_sum(stage);
    for (size_t i = 0; i < sum.size(); ++i) {
      weights[stage][i] = static_cast<float>(sum[i] / options_.layout.pipelines);
    }
  }
  points_.push_back({at_us, samples_, task_.evaluate(weights)});
  const Score& score = points_.back().score;
  const bool is_lost = !std::isfinite(score.loss);  // Nothing comes after that.
  is_over_ = is_lost || (options_.stop_at_loss && score.loss <= *options_.stop_at_loss) ||
             (options_.stop_at_samples && samples_ >= *options_.stop_at_samples);
}

double ReplicaTraining::staleness_mean() const {
  return member_count_ > 0 ? staleness_sum_ / static_cast<double>(member_count_) : 0;
}

}  // namespace skein::bench
