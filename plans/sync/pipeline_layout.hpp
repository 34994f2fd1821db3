#pragma once

#include <cstdint>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Pipeline replicas of whole pipelines: every stage has one replica in every pipeline replica, and
/// replicas are numbered stage by stage, as in a plan.
struct PipelineLayout {
  uint32_t pipelines = 0;  // N, > 0; some may be absent.
  uint32_t stages = 0;     // S, > 0.

  uint32_t replica_count() const { return pipelines * stages; }
  bool has(ReplicaId replica) const { return replica.value < replica_count(); }
  ReplicaId replica(uint32_t stage, uint32_t pipeline) const {
    return {stage * pipelines + pipeline};
  }
  uint32_t stage_of(ReplicaId replica) const { return replica.value / pipelines; }
  uint32_t pipeline_of(ReplicaId replica) const { return replica.value % pipelines; }
  bool operator==(const PipelineLayout&) const = default;
};

}  // namespace skein::plans
