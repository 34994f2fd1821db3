#include "bench/policies/large_batch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/policies/rank_threads.hpp"
#include "bench/policies/sample_supply.hpp"
#include "net/reduce/adasum.hpp"
#include "net/reduce/adasum_chunks.hpp"
#include "plans/base/check.hpp"

namespace skein::bench {
namespace {

constexpr std::array<uint32_t, 7> kRanks = {1, 2, 4, 8, 16, 32, 64};
constexpr float kMomentum = 0.9F;
constexpr float kAdamSecond = 0.999F;
constexpr float kAdamEpsilon = 1e-8F;
constexpr uint64_t kEvaluations = 40;
constexpr double kBolder = 4;  // The boldest rate tried, relative to the best one of one rank.

/// What gradients go by; the last one is of what each rank's own optimizer makes of its gradient,
/// as `sync.round_reducer` does it with rounds of one step: moments are averaged then.
enum class Reduction { kSum, kMean, kAdasum, kAdasumOfDeltas };
constexpr std::array<std::pair<Reduction, const char*>, 4> kReductions = {
    {{Reduction::kMean, "mean"},
     {Reduction::kSum, "sum"},
     {Reduction::kAdasum, "adasum"},
     {Reduction::kAdasumOfDeltas, "of deltas"}}};

using Weights = std::vector<std::vector<float>>;  // By stage.

using VectorByRank = std::vector<std::vector<float>>;

/// Reduced as `sync.reducer = "adasum"` does it: each rank is a thread, and has its vector.
std::vector<float> adasum_of_ranks(VectorByRank vectors, const std::vector<size_t>& tensors) {
  std::vector<RankMail> mail(vectors.size());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < vectors.size(); ++rank) {
    threads.emplace_back([&, rank] {
      RankThread exchange(mail, rank);
      const absl::Status reduced = net::adasum(exchange, vectors[rank], tensors);
      SKEIN_CHECK(reduced.ok()) << reduced.ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::move(vectors[0]);
}

/// Reduced as `sync.round_reducer = "adasum"` does it, as if one member owned the one chunk.
std::vector<float> adasum_of_members(const VectorByRank& vectors,
                                     const std::vector<size_t>& tensors) {
  const auto count = static_cast<uint32_t>(vectors.size());
  const auto floats = static_cast<uint32_t>(vectors[0].size());
  net::AdasumChunks chunks({tensors, count, floats});
  const std::vector<std::span<const float>> parts(vectors.begin(), vectors.end());
  chunks.add(0, parts);
  chunks.on_dots(0, chunks.dots());
  std::vector<float> result(floats);
  chunks.reduce(0, parts, std::vector<double>(count, 1.0 / count), result);
  return result;
}

/// Their sum, or their mean.
std::vector<float> sum_or_mean(Reduction how, const VectorByRank& vectors) {
  const float scale = how == Reduction::kMean ? 1.0F / static_cast<float>(vectors.size()) : 1.0F;
  std::vector<float> sum(vectors[0].size());
  for (const std::vector<float>& each : vectors) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale * each[i];
  }
  return sum;
}

Weights gradient_of(Task& task, const Weights& weights, const std::vector<uint32_t>& samples) {
  const uint32_t stages = task.stage_count();
  Weights outputs(stages + 1);
  for (uint32_t stage = 0; stage + 1 < stages; ++stage) {
    outputs[stage + 1] = task.forward(stage, weights[stage], samples, outputs[stage]);
  }
  Weights gradients(stages);
  std::vector<float> from_above;
  for (uint32_t stage = stages; stage-- > 0;) {
    gradients[stage].resize(weights[stage].size());
    from_above =
        task.backward(stage, weights[stage], samples, outputs[stage], from_above, gradients[stage]);
  }
  return gradients;
}

/// What an optimizer keeps of a stage.
struct Moments {
  std::vector<float> first, second;
};

/// What the optimizer adds to the weights of a stage in its step `step`, from 1.
std::vector<float> effect(OptimizerChoice::Kind kind, const std::vector<float>& gradient, float lr,
                          uint64_t step, Moments& moments) {
  std::vector<float> added(gradient.size());
  const float first_scale = 1 - std::pow(kMomentum, static_cast<float>(step));
  const float second_scale = 1 - std::pow(kAdamSecond, static_cast<float>(step));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i];
    float& m = moments.first[i];
    if (kind == OptimizerChoice::Kind::kMomentum) {
      m = kMomentum * m + g;
      added[i] = -lr * m;
      continue;
    }
    float& v = moments.second[i];
    m = kMomentum * m + (1 - kMomentum) * g;
    v = kAdamSecond * v + (1 - kAdamSecond) * g * g;
    added[i] = -lr * (m / first_scale) / (std::sqrt(v / second_scale) + kAdamEpsilon);
  }
  return added;
}

struct Run {
  Reduction how = Reduction::kMean;
  uint32_t ranks = 1;
  double lr = 0;
  uint64_t seed = 0;
  OptimizerChoice::Kind optimizer = OptimizerChoice::Kind::kMomentum;
};
struct Outcome {
  double loss = std::numeric_limits<double>::infinity();  // At the end; infinite: it diverged.
  std::optional<double> samples_to_target;
};

class Training {
 public:
  Training(Task& task, const Run& run, uint64_t batch)
      : task_(task),
        run_(run),
        batch_(batch),
        supply_(task.skewed_order(), {run.ranks, batch, false, run.seed}) {
    for (uint32_t stage = 0; stage < task.stage_count(); ++stage) {
      weights_.push_back(task.initial_weights(stage, run.seed));
      tensors_.push_back(task.tensor_floats(stage));
      const std::vector<size_t>& floats = tensors_.back();
      SKEIN_CHECK(std::accumulate(floats.begin(), floats.end(), size_t{0}) ==
                  weights_.back().size())
          << "stage " << stage;
      const std::vector<float> none(weights_.back().size());
      moments_.push_back({none, none});
    }
  }

  Outcome train(uint64_t samples, double target) {
    Outcome outcome;
    double before = std::numeric_limits<double>::infinity();
    double done_before = 0;
    const uint64_t steps = samples / (batch_ * run_.ranks);
    const uint64_t each = std::max<uint64_t>(1, steps / kEvaluations);
    for (uint64_t step = 0; step < steps; ++step) {
      update(step);
      if ((step + 1) % each != 0 && step + 1 < steps) continue;
      const double loss = task_.evaluate(weights_).loss;
      if (!std::isfinite(loss)) return {};
      const auto done = static_cast<double>((step + 1) * batch_ * run_.ranks);
      if (!outcome.samples_to_target && loss <= target) {
        const double share = std::isfinite(before) ? (before - target) / (before - loss) : 1;
        outcome.samples_to_target = done_before + share * (done - done_before);
      }
      outcome.loss = before = loss;
      done_before = done;
    }
    return outcome;
  }

 private:
  void update(uint64_t step) {
    std::vector<VectorByRank> by_stage(task_.stage_count());
    for (uint32_t rank = 0; rank < run_.ranks; ++rank) {
      Weights gradients = gradient_of(task_, weights_, supply_.take(rank, step));
      supply_.finish(rank, step);
      for (size_t s = 0; s < gradients.size(); ++s) by_stage[s].push_back(std::move(gradients[s]));
    }
    for (size_t s = 0; s < by_stage.size(); ++s) {
      const std::vector<float> added =
          run_.how == Reduction::kAdasumOfDeltas
              ? of_deltas(by_stage[s], tensors_[s], moments_[s], step + 1)
              : effect_of(reduced(by_stage[s], tensors_[s]), moments_[s], step + 1);
      for (size_t i = 0; i < added.size(); ++i) weights_[s][i] += added[i];
    }
  }
  std::vector<float> reduced(const VectorByRank& gradients,
                             const std::vector<size_t>& tensors) const {
    return run_.how == Reduction::kAdasum ? adasum_of_ranks(gradients, tensors)
                                          : sum_or_mean(run_.how, gradients);
  }
  std::vector<float> effect_of(const std::vector<float>& gradient, Moments& moments,
                               uint64_t step) const {
    return effect(run_.optimizer, gradient, static_cast<float>(run_.lr), step, moments);
  }
  std::vector<float> of_deltas(const VectorByRank& gradients, const std::vector<size_t>& tensors,
                               Moments& moments, uint64_t step) const {
    VectorByRank deltas, firsts, seconds;
    for (const std::vector<float>& each : gradients) {
      Moments own = moments;
      deltas.push_back(effect_of(each, own, step));
      firsts.push_back(std::move(own.first));
      seconds.push_back(std::move(own.second));
    }
    moments = {sum_or_mean(Reduction::kMean, firsts), sum_or_mean(Reduction::kMean, seconds)};
    return adasum_of_members(deltas, tensors);
  }

  Task& task_;
  Run run_;
  uint64_t batch_;
  SampleSupply supply_;
  Weights weights_;
  std::vector<std::vector<size_t>> tensors_;  // Floats of each, by stage.
  std::vector<Moments> moments_;              // By stage.
};

/// What was measured with one reducer, one number of ranks and one rate.
struct Cell {
  double lr = 0;
  std::vector<double> losses;
  std::vector<double> samples;  // To the target, of the seeds that reached it.
  double mean_loss() const {
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum / static_cast<double>(losses.size());
  }
};

class Table {
 public:
  Table(const TaskMaker& make_task, const ComparisonOptions& options, uint64_t samples)
      : task_(make_task()), options_(options), samples_(samples) {}

  Cell measure(Reduction how, uint32_t ranks, double lr, const std::vector<uint64_t>& seeds) {
    Cell cell{lr, {}, {}};
    for (const uint64_t seed : seeds) {
      Training training(*task_, {how, ranks, lr, seed, options_.optimizer}, options_.batch);
      const Outcome outcome = training.train(samples_, options_.target_loss);
      cell.losses.push_back(outcome.loss);
      if (outcome.samples_to_target) cell.samples.push_back(*outcome.samples_to_target);
    }
    return cell;
  }

  /// The rate with the least mean loss over the tuning seeds.
  double tuned(Reduction how, uint32_t ranks) {
    double best = options_.lr_grid[0];
    double least = std::numeric_limits<double>::infinity();
    for (const double lr : options_.lr_grid) {
      const double loss = measure(how, ranks, lr, options_.tuning_seeds).mean_loss();
      if (loss < least) best = lr;
      least = std::min(least, loss);
    }
    return best;
  }

  void print(const std::string& title, const std::optional<double>& lr) {
    std::printf("\n%s\n%6s %6s", title.c_str(), "ranks", "batch");
    for (const auto& [how, name] : kReductions)
      std::printf(" | %6s: loss, samples to target", name);
    std::printf("\n");
    std::map<Reduction, uint64_t> largest;
    for (const uint32_t ranks : kRanks) {
      std::printf("%6u %6llu", ranks, static_cast<unsigned long long>(ranks * options_.batch));
      for (const auto& [how, name] : kReductions) {
        const Cell cell = measure(how, ranks, lr ? *lr : tuned(how, ranks), options_.seeds);
        print_cell(cell, !lr);
        if (cell.samples.size() == options_.seeds.size()) largest[how] = ranks * options_.batch;
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    std::printf("the largest batch with which all seeds reach the target:");
    for (const auto& [how, name] : kReductions) {
      std::printf(" %s %llu", name, static_cast<unsigned long long>(largest[how]));
    }
    std::printf("\n");
  }

 private:
  void print_cell(const Cell& cell, bool names_rate) const {
    if (!std::isfinite(cell.mean_loss())) {
      std::printf(" | %33s", "diverged");
    } else {
      double spread = 0;
      for (const double loss : cell.losses) spread += std::pow(loss - cell.mean_loss(), 2);
      spread = std::sqrt(spread / static_cast<double>(cell.losses.size() - 1));
      std::printf(" | %.3f +- %.3f %7s (%zu of %zu)", cell.mean_loss(), spread,
                  to_text(cell.samples).c_str(), cell.samples.size(), cell.losses.size());
    }
    if (names_rate) std::printf(" lr %g", cell.lr);
  }

  static std::string to_text(const std::vector<double>& samples) {
    if (samples.empty()) return "-";
    double sum = 0;
    for (const double each : samples) sum += each;
    return std::to_string(std::lround(sum / static_cast<double>(samples.size())));
  }

  std::unique_ptr<Task> task_;
  const ComparisonOptions& options_;
  uint64_t samples_;
};

}  // namespace

void print_large_batches(const TaskMaker& make_task, const ComparisonOptions& options,
                         uint64_t samples) {
  Table table(make_task, options, samples);
  const double lr = table.tuned(Reduction::kMean, 1);
  std::printf("after %llu samples; %s; mean +- standard deviation of %zu seeds\n",
              static_cast<unsigned long long>(samples),
              options.optimizer == OptimizerChoice::Kind::kMomentum ? "momentum 0.9" : "Adam",
              options.seeds.size());
  for (const double factor : {1.0, kBolder}) {
    char title[80];
    std::snprintf(title, sizeof(title), "lr %g, %g of the best one for one rank:", factor * lr,
                  factor);
    table.print(title, factor * lr);
  }
  table.print("with the best lr of each, by the tuning seeds:", std::nullopt);
}

}  // namespace skein::bench
