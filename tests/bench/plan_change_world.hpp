#pragma once

#include <cstdint>
#include <string>

namespace skein::bench {

/// What one change of plan takes: a worker is lost, the others quiesce and say what they hold, a
/// plan is made and assigned, groups find each other, everybody is prepared, training starts.
struct PlanChangeCost {
  std::string device;              // "cpu" or "cuda"
  uint64_t workers = 0;            // Before the loss.
  uint64_t stages = 0;             // The new plan's.
  uint64_t to_workers = 0;         // Messages from the coordinator.
  uint64_t to_coordinator = 0;     // Messages to it.
  uint64_t rendezvous = 0;         // Those of both that are entries of the rendezvous store.
  uint64_t bytes = 0;              // All messages, encoded.
  uint64_t assign_bytes = 0;       // All assignments.
  uint64_t longest_assign = 0;     // Bytes.
  double decide_seconds = 0;       // The coordinator's CPU until the assignments are out.
  double coordinator_seconds = 0;  // The coordinator's CPU for all of it.
  bool has_started = false;
};

/// The Coordinator actor with its state machine and all codecs, with `workers` simulated workers
/// that answer as real ones do. Nothing is computed, and no sockets are used. `device`: "cpu",
/// whose groups meet over the hosts, or "cuda", whose groups all are new ones of their devices,
/// which the leader decides on.
PlanChangeCost change_plan(uint64_t workers, const std::string& device = "cpu");

}  // namespace skein::bench
