#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "bench/policies/sample_supply.hpp"
#include "bench/policies/task.hpp"
#include "plans/simulator/policy_listener.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::bench {

struct OptimizerChoice {
  enum class Kind { kMomentum, kAdamw };
  Kind kind = Kind::kMomentum;  // 0.9; AdamW: 0.9, 0.999, no decay.
  double lr = 0.05;
};

/// That an optimizer keeps.
inline double moments_per_weight(OptimizerChoice::Kind kind) {
  return kind == OptimizerChoice::Kind::kMomentum ? 1 : 2;
}

struct TrainingOptions {
  plans::PipelineLayout layout;
  OptimizerChoice optimizer;
  uint64_t batch = 8;
  bool is_skewed = false;
  uint64_t seed = 1;
  double evaluate_every_us = 100'000;
  std::optional<double> stop_at_loss;  // The run ends there.
  std::optional<uint64_t> stop_at_samples;
  bool checks_means = false;  // See `mean_error`.
};

/// What an evaluation found.
struct TrainingPoint {
  double at_us = 0;
  uint64_t samples = 0;  // Whose gradients have been computed, over all pipeline replicas.
  Score score;
  bool operator==(const TrainingPoint& other) const {
    return at_us == other.at_us && samples == other.samples && score.loss == other.score.loss &&
           score.accuracy == other.score.accuracy;
  }
};

/// Real training in simulated time: every replica has weights and an optimizer state of its own,
/// and what the policy says is done with the weights as they are at that moment.
///
/// - The gradient of a step is that at the weights its forward began with (weight stashing).
/// - kReduceGradients: everybody applies the mean gradient when the group ends.
/// - kAverageWeights: who has a gradient applies it when the group starts; when it ends, all have
///   the weighted sum of what they had then, and non-blocking members the updates on top of it that
///   they have done meanwhile. The optimizers' states are averaged only where the policy says so.
/// - kServer: likewise; what a member pushes is all that its weights have changed by since it took
///   the server's. So momentum is the members' own, and the server only adds.
/// - A group that fails leaves everybody with what it had.
/// - Who goes on without a group, at the end of a round, applies its gradient before its next
///   forward. When all have, members push to a server what it has not had yet; then weights,
///   moments and the number of updates are those of the mean.
///
/// Evaluated is the mean of all replicas of each stage, but of a stage with a server its weights.
class ReplicaTraining final : public plans::PolicyListener {
 public:
  /// `task` must live longer.
  ReplicaTraining(Task& task, const TrainingOptions& options);

  bool advance(double now_us) override;
  void on_forward_start(plans::ReplicaId replica, uint64_t step) override;
  void on_forward_end(plans::ReplicaId replica, uint64_t step) override;
  void on_gradient(plans::ReplicaId replica, uint64_t step) override;
  void on_group_start(const plans::GroupStart& start) override;
  void on_group_end(const plans::GroupStart& start, bool ok) override;
  void on_round_end() override;

  const std::vector<TrainingPoint>& points() const { return points_; }
  /// The mean over all members of all groups.
  double staleness_mean() const;
  /// By how much an average with equal weights changed the mean of a stage at most, relative to
  /// the largest weight there.
  double mean_error() const { return mean_error_; }

 private:
  struct Stashed {
    uint64_t step = 0;
    std::vector<float> weights;
  };
  struct Replica {
    std::vector<float> weights, gradient, taken;
    std::vector<float> moment1, moment2;
    uint64_t updates = 0;
    bool has_gradient = false;
    std::deque<Stashed> stash;  // The steps whose backward is still to come.
  };
  /// One step of a pipeline replica on its way through the stages.
  struct Flow {
    std::vector<uint32_t> samples;
    std::vector<std::vector<float>> outputs, gradients;  // One for each stage.
  };

  using State = std::vector<float> Replica::*;
  struct Contribution {
    State state = nullptr;
    std::vector<std::vector<float>> values;  // By member.
  };

  void update(Replica& replica);
  void reduce(const plans::GroupStart& start);
  void contribution(const plans::GroupStart& start);
  void average(const plans::GroupStart& start);
  void add_average(const plans::GroupStart& start, const Contribution& contribution);
  void serve(const plans::GroupStart& start);
  void push(uint32_t stage, const plans::GroupMember& member);
  void take_mean(std::span<const plans::ReplicaId> members, State state);
  std::vector<double> stage_sum(uint32_t stage) const;
  void check_mean(uint32_t stage, const std::vector<double>& before);
  void evaluate(double at_us);

  Task& task_;
  TrainingOptions options_;
  SampleSupply supply_;
  std::vector<Replica> replicas_;
  std::vector<std::vector<float>> servers_;                      // By stage.
  std::vector<bool> has_served_;                                 // By stage.
  std::vector<std::map<uint64_t, Flow>> flows_;                  // By pipeline replica and step.
  std::map<uint64_t, std::vector<Contribution>> contributions_;  // Averages under way, by number.
  std::vector<TrainingPoint> points_;
  double next_evaluation_us_ = 0;
  uint64_t samples_ = 0;
  bool is_over_ = false;
  double staleness_sum_ = 0;
  uint64_t member_count_ = 0;
  double mean_error_ = 0;
};

}  // namespace skein::bench
