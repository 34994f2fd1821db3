#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/checker.hpp"
#include "tests/sim/processes.hpp"
#include "tests/sim/scenario.hpp"

namespace skein::sim {

struct RunOptions {
  bool traces = false;
  Mutation mutation = Mutation::kNone;
  const TrainedModel* expected = nullptr;  // Of the undisturbed run; null: not known.
  std::string run = "run-1";               // The run's id.
};

struct Outcome {
  std::optional<std::string> failure;
  uint64_t hash = 0;    // A hash of all events.
  uint64_t events = 0;  // Number of them.
  double virtual_seconds = 0;
  std::array<int, kFaultKinds> injected{};
  RecoveryCounts recoveries;
  TrainedModel model;
  bool is_complete = false;     // All steps are trained; else nothing whole was left to go on from.
  bool has_one_shape = false;   // All plans were alike.
  bool has_other_keys = false;  // A life of its coordinator had.
  std::string shape;            // The shape of one of them.
  bool compared_bits = false;   // With the run without faults.
};

/// Runs one scenario to its end.
Outcome run_once(const Scenario& scenario, const RunOptions& options);
/// Runs two at once, of which the n-th worker of the one has a device with the n-th of the other,
/// and dies and stalls with it. Each is compared with what it is alone: in weights, and bit for bit
/// if no fault was drawn and all its plans were alike.
Outcome run_shared(const Scenario& first, const Scenario& second, const RunOptions& options);
/// Runs it, and what it is compared with: the same job on one worker, which is kept for other seeds
/// with that job; and for some seeds, if all plans were alike, or whatever they were if it is
/// trained by tokens reproducibly, the same scenario without faults, whose weights it must have bit
/// for bit.
Outcome run_and_compare(const Scenario& scenario, const RunOptions& options);

}  // namespace skein::sim
