#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/elastic/worker_pairs.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// State of layers that a worker can give: of its live replicas, or of a snapshot that it keeps.
struct InventoryItem {
  uint64_t step = 0;  // The state is that after so many committed steps.
  LayerRange layers;
  uint64_t generation = 0;  // In which the last of those steps was committed; 0: none was.
  bool operator==(const InventoryItem&) const = default;
};

/// The state of `layer` travels from one worker to another.
struct LayerMove {
  int64_t layer = 0;
  WorkerId from;
  WorkerId to;
  bool operator==(const LayerMove&) const = default;
};

/// What the workers can give, and what is on disk.
struct StateSources {
  std::map<WorkerId, std::vector<InventoryItem>> inventory;  // What every live worker holds.
  uint64_t committed = 0;     // Steps that are committed: state of a later step is not used.
  uint64_t durable_step = 0;  // The step of the newest complete checkpoint; 0: the initial weights.
  WorkerPairs apart;          // Who cannot reach one another: no state moves between them.
};

/// Where training goes on, and how each worker of the plan gets its layers.
struct RestoreDecision {
  uint64_t first_step = 0;       // Steps from this one on are (again) to be done.
  bool from_checkpoint = false;  // Every layer is read from the checkpoint; `moves` is empty.
  std::vector<LayerMove> moves;  // By layer, then receiver. Layers not listed are there already.
  bool operator==(const RestoreDecision&) const = default;
};

/// The newest step that may be used and at which the workers together hold every layer, or that of
/// the checkpoint.
uint64_t newest_step(const StateSources& sources, int64_t layer_count);

/// The newest step at which the workers together hold every layer, and each worker of the plan has
/// or can reach what it needs; the checkpoint if there is none that is newer. A layer comes from
/// the worker itself if it holds it, else from the worker with the fewest layers to send so far,
/// ties by id. `plan` must be valid for `layer_count` layers.
RestoreDecision decide_restore(const Plan& plan, int64_t layer_count, const StateSources& sources);

}  // namespace skein::plans
