#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/planner/memory_cut.hpp"

namespace skein::plans {

// What a process that draws text and the workers that compute for it tell each other. Bounds are
// those of net/codec/bounds.hpp; what a repeat does stands in the schema.

/// A text has one plan, whose generation this is.
inline constexpr uint64_t kTextGeneration = 1;
/// Positions that are added by one step at most; a longer prompt takes several.
inline constexpr int64_t kTextStepMax = 65536;

/// Coordinator -> worker: say what room you have for layers of a model.
struct TextRequest {
  std::string folder;     // The model's, the same path on all machines; kPathBytesMax.
  uint64_t digest = 0;    // The folder's, `gpu::ModelSource::digest`.
  int64_t positions = 1;  // The longest sequence, >= 1; kSamplesMax.
  int64_t added = 1;      // The most positions that are computed at once, in [1, kTextStepMax].
  bool operator==(const TextRequest&) const = default;
};

/// Worker -> coordinator.
struct TextRoom {
  LayerRoom room;               // Bytes; kLayersMax layers.
  bool is_host_memory = false;  // The machine's, which other workers there share.
  bool operator==(const TextRoom&) const = default;
};

/// Coordinator -> worker: load these layers.
struct TextLayers {
  LayerRange layers;
  WorkerId previous;         // Whose activations go into them; 0: the coordinator's tokens do.
  WorkerId next;             // Who gets what comes out; 0: the coordinator.
  std::string next_address;  // Its data plane, a name; empty: the coordinator's.
  uint64_t secret = 0;       // Shown on data connections.
  bool operator==(const TextLayers&) const = default;
};

/// Worker -> coordinator: the layers are loaded.
struct TextReady {
  bool operator==(const TextReady&) const = default;
};

/// Coordinator -> every worker with layers: add positions to the sequence.
struct TextStep {
  uint64_t number = 0;          // Ascending from 1; kStepsMax.
  int64_t begin = 0;            // Positions before these; 0: another sequence begins.
  int64_t count = 1;            // In [1, kTextStepMax].
  std::vector<int32_t> tokens;  // [count] for the worker with layer 0, else empty; >= 0.
  bool operator==(const TextStep&) const = default;
};

}  // namespace skein::plans
