#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plans/sync/column_layout.hpp"

namespace skein::plans {

/// What the columns of a job were like lately.
struct StragglerProfile {
  ColumnLayout layout;
  std::vector<double> forward_us, backward_us;  // [stages] of the fastest column, undisturbed.
  double exchange_us = 0;                       // As in `PolicySimulationOptions`.
  double latency_us = 0;
  std::vector<double> slowness;  // [columns] >= 1: typical step time, relative to the fastest's.
  double stall_rate = 0;         // Share of forwards and backwards that stall, 0 to 1.
  double stall_us = 0;           // For how long, in the mean.
};

/// Typical steps and stalls, told apart: a column is as slow as the median of its steps; what a
/// step takes beyond one and a half of that is a stall.
///
/// `step_us`  [columns][>= 1] what the last steps took to compute, without waiting for others.
/// `profile`  whose `slowness`, `stall_rate` and `stall_us` are overwritten; a step is two pieces.
void measure_stragglers(std::span<const std::vector<double>> step_us, StragglerProfile& profile);

/// A policy that may be chosen.
struct SyncCandidate {
  enum class Kind { kAllreduce, kSdpipe, kAdPsgd };
  Kind kind = Kind::kAllreduce;
  uint64_t period = 0;  // kSdpipe: P.
  std::string name() const;
  bool operator==(const SyncCandidate&) const = default;
};

struct SyncPrediction {
  SyncCandidate candidate;
  double steps_per_second = 0;
  double disagreement = 0;  // See `Disagreement`.
  double progress = 0;      // Steps, counted at what they bring; relative to all-reduce.
};

struct SyncChoice {
  SyncCandidate candidate;
  std::vector<SyncPrediction> predictions;  // In the order of the candidates.
  std::string reason;
};

/// How much of the progress of a synchronous step one step makes if replicas are so far apart.
/// Measured with `bench/policies --digits` on 8 columns: on unlike parts, where every column has
/// its own part of the data and these differ, 1 / (1 + sqrt(disagreement)) is within 0.1 of what 27
/// of 32 pairs of policy and scenario showed; on shuffled data, no loss was seen in the noise.
double progress_per_step(double disagreement, bool parts_are_unlike);

/// Simulates each candidate on the profile, and takes the one that makes most progress; on a tie
/// the earlier one. `candidates` are not empty. Cost: a simulation of 100 steps each.
SyncChoice choose_sync(const StragglerProfile& profile, std::span<const SyncCandidate> candidates,
                       bool parts_are_unlike);

struct ChooserOptions {
  double gain_min = 1.05;  // What another policy has to promise over the present one.
  int32_t patience = 2;    // Observations in a row that have to say so.
  bool parts_are_unlike = false;
};

/// Decides when it is time for another policy: not for little, and not for a moment's noise. Not
/// thread-safe.
class SyncChooser {
 public:
  SyncChooser(const ChooserOptions& options, std::vector<SyncCandidate> candidates,
              SyncCandidate now)
      : options_(options), candidates_(std::move(candidates)), now_(now) {}

  const SyncCandidate& now() const { return now_; }
  /// Another observation; what to change to, and why, if it is time.
  std::optional<SyncChoice> observe(const StragglerProfile& profile);

 private:
  ChooserOptions options_;
  std::vector<SyncCandidate> candidates_;
  SyncCandidate now_;
  int32_t wishes_ = 0;
};

}  // namespace skein::plans
