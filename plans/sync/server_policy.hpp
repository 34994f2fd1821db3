#pragma once

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/replica_table.hpp"
#include "plans/sync/server_versions.hpp"

namespace skein::plans {

/// What policies with parameter servers share: where replicas are, and how old their weights are. A
/// policy says who may start when something has changed at a stage. Not thread-safe.
class ServerPolicy : public GroupScheduler {
 public:
  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) final;
  GroupDecisions on_timer(uint64_t) final { return {}; }
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) final;

 protected:
  explicit ServerPolicy(const PipelineLayout& layout) : table_(layout), versions_(layout) {}

  /// Adds the groups of the stage that may start now.
  virtual void advance(uint32_t stage, GroupDecisions& decisions) = 0;

  ReplicaTable table_;
  ServerVersions versions_;
};

}  // namespace skein::plans
