#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/run_scenario.hpp"

namespace skein::sim {

struct SeedRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

struct RunnerOptions {
  SeedRange seeds;
  std::string policy = "allreduce";  // As `make_scenario`.
  bool is_dense = false;             // As `make_scenario`.
  bool is_shared = false;            // Each with another job on the same machines.
  int jobs = 1;
  Mutation mutation = Mutation::kNone;
  bool stops_at_failure = false;
  double limit_seconds = 0;  // No new seed is begun after that; 0: none.
};

struct SeedFailure {
  uint64_t seed = 0;
  std::string what;
};

/// What many seeds came to.
struct Summary {
  uint64_t seeds = 0;
  uint64_t events = 0;
  double virtual_seconds = 0;
  uint64_t repeated = 0;       // Seeds that were run twice, and matched.
  uint64_t compared_bits = 0;  // Seeds whose weights were those of a calm run, bit for bit.
  std::array<uint64_t, kFaultKinds> injected{};
  RecoveryCounts recoveries;
  std::vector<SeedFailure> failures;  // By seed.
};

/// Runs every seed in one of `jobs` processes; one that aborts fails its seed only.
Summary run_seeds(const RunnerOptions& options);

/// The fewest faults of the scenario with which it still fails, by leaving out one after the other.
/// Each try is a process of its own.
std::vector<size_t> shrink(const Scenario& scenario, const RunnerOptions& runner);

/// The scenario as the runner runs it.
Outcome run_as(const RunnerOptions& runner, const Scenario& scenario, const RunOptions& options);

/// The faults at these positions only.
Scenario with_faults(const Scenario& scenario, const std::vector<size_t>& kept);

}  // namespace skein::sim
