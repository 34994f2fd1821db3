#pragma once

#include <cstdint>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Columns of whole pipelines: every stage has one replica in every column, and replicas are
/// numbered stage by stage, as in a plan.
struct ColumnLayout {
  uint32_t columns = 0;  // N, > 0; some may be absent.
  uint32_t stages = 0;   // S, > 0.

  uint32_t replica_count() const { return columns * stages; }
  bool has(ReplicaId replica) const { return replica.value < replica_count(); }
  ReplicaId replica(uint32_t stage, uint32_t column) const { return {stage * columns + column}; }
  uint32_t stage_of(ReplicaId replica) const { return replica.value / columns; }
  uint32_t column_of(ReplicaId replica) const { return replica.value % columns; }
  bool operator==(const ColumnLayout&) const = default;
};

}  // namespace skein::plans
