#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plans/base/change_patience.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// What the pipeline replicas of a job were like lately.
struct StragglerProfile {
  PipelineLayout layout;
  std::vector<double> forward_us,
      backward_us;         // [stages] of the fastest pipeline replica, undisturbed.
  double exchange_us = 0;  // As in `PolicySimulationOptions`.
  double latency_us = 0;
  double hidden_us = 0;           // As there.
  double moments_per_weight = 0;  // As there: 1 for momentum, 2 for AdamW.
  std::vector<double>
      slowness;           // [pipeline replicas] >= 1: typical step time, relative to the fastest's.
  double stall_rate = 0;  // Share of forwards and backwards that stall, 0 to 1.
  double stall_us = 0;    // For how long, in the mean.
};

/// Typical steps and stalls, told apart: a pipeline replica is as slow as the median of its steps;
/// what a step takes beyond one and a half of that is a stall.
///
/// `step_us`  [pipeline replicas][>= 1] what the last steps took to compute, without waiting for
/// others. `profile`  whose `slowness`, `stall_rate` and `stall_us` are overwritten; a step is two
/// pieces.
void measure_stragglers(std::span<const std::vector<double>> step_us, StragglerProfile& profile);

/// The same for steps whose stalls are known already: all that a step takes beyond `undisturbed_us`
/// is one, however little it is of the whole step.
///
/// `undisturbed_us`  [pipeline replicas] > 0
void measure_stalls(std::span<const std::vector<double>> step_us,
                    std::span<const double> undisturbed_us, StragglerProfile& profile);

/// A policy that may be chosen.
struct SyncCandidate {
  uint64_t local_steps = 0;  // 0: all-reduce; else as in `OverlappedAverageOptions`.
  bool runs_pipelines() const { return local_steps > 0; }
  std::string name() const;
  bool operator==(const SyncCandidate&) const = default;
};

struct SyncPrediction {
  SyncCandidate candidate;
  double steps_per_second = 0;
  double consensus_distance = 0;  // See `ConsensusDistance`.
  double progress = 0;            // Steps, counted at what they bring; relative to all-reduce.
};

struct SyncChoice {
  SyncCandidate candidate;
  std::vector<SyncPrediction> predictions;  // In the order of the candidates.
  std::string reason;
};

/// What a step is worth that replicas do apart from each other.
struct DriftKind {
  bool parts_are_unlike =
      false;  // Every pipeline replica has its own part of the data, and these differ.
  bool averages_moments = false;  // Groups do.
  bool is_adaptive = false;       // The optimizer scales steps by second moments, as AdamW does.
  uint32_t pipelines = 1;         // Pipeline replicas.
};

/// Those of `progress_per_step`.
struct WorthConstants {
  double loss_on_like_parts = 1.0 / 50;
  double loss_with_moments = 1.0 / 10;
  double adaptive_exponent = 1.0 / 8;
};

/// How much of the progress of a synchronous step one step makes if replicas are so far apart.
/// Measured with `bench/policies` on 8 pipeline replicas, steps to the target relative to
/// all-reduce. Momentum, like parts: 1 / (1 + consensus distance / 50), from no loss that could be
/// seen at 0.4 to 0.72 at 20. Unlike parts: 1 / (1 + consensus distance / 10) if momentum is
/// averaged, from 0.8 to 1.09 below 1.5, and about 0.75 from 2 to 10; else 1 / (1 + sqrt(consensus
/// distance)), as momentum of their own then drives replicas apart between groups. AdamW: that,
/// divided by the eighth root of the pipeline replicas, however close they are, as each scales by
/// the noise of its own samples alone; fitted with 8 of them (0.77), where 2, 4 and 16 were
/// measured to have 0.99, 0.82 and 0.69.
double progress_per_step(double consensus_distance, const DriftKind& kind,
                         const WorthConstants& constants = {});

struct ChooserOptions {
  /// Looks come after steps of a pipeline replica, in the mean.
  ChangePatience::Options patience = {.steps_first = 2, .steps_max = 48};
  bool parts_are_unlike = false;
  bool is_adaptive = false;  // As in `DriftKind`.

  /// On unlike parts pipeline replicas average moments: replicas go apart there at once.
  bool averages_moments(const SyncCandidate& candidate) const {
    return parts_are_unlike && candidate.runs_pipelines();
  }
};

/// The options of a candidate that runs pipeline replicas. Unlike parts go apart with each step.
OverlappedAverageOptions overlapped_options(const SyncCandidate& candidate, bool averages_moments);

/// Simulates each candidate on the profile, and takes the one that makes most progress; on a tie
/// the earlier one. `candidates` are not empty. Cost: a simulation of 100 steps each.
SyncChoice choose_sync(const StragglerProfile& profile, std::span<const SyncCandidate> candidates,
                       const ChooserOptions& options);

/// Decides when it is time for another policy: not for little, and not for a moment's noise. Not
/// thread-safe.
class SyncChooser {
 public:
  SyncChooser(const ChooserOptions& options, std::vector<SyncCandidate> candidates,
              SyncCandidate now)
      : options_(options),
        candidates_(std::move(candidates)),
        now_(now),
        patience_(options.patience) {}

  const SyncCandidate& now() const { return now_; }
  uint64_t steps_between_looks() const { return patience_.steps_between_looks(); }
  /// Another observation; what to change to, and why, if it is time.
  std::optional<SyncChoice> observe(const StragglerProfile& profile);
  /// The same, in two parts: somebody else calls `choose_sync` with these.
  std::optional<SyncChoice> judge(SyncChoice choice);
  const std::vector<SyncCandidate>& candidates() const { return candidates_; }
  const ChooserOptions& options() const { return options_; }

 private:
  ChooserOptions options_;
  std::vector<SyncCandidate> candidates_;
  SyncCandidate now_;
  ChangePatience patience_;
};

}  // namespace skein::plans
