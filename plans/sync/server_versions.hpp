#pragma once

#include <cstdint>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// How old the weights are that a member of a server's group has computed with, in updates that
/// were started at the server of its stage since it took them. Counted in the order of starts: the
/// transfers overlap, so what a member really takes may differ by the groups that are under way.
class ServerVersions {
 public:
  explicit ServerVersions(const PipelineLayout& layout)
      : layout_(layout), version_(layout.stages), taken_(layout.replica_count()) {}

  /// The pipeline replica comes with the servers' newest weights.
  void join(uint32_t pipeline) {
    for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
      Taken& taken = taken_[layout_.replica(stage, pipeline).value];
      taken.version = taken.before = version_[stage];
    }
  }

  /// Fills in the staleness of a group, which is `updates` to the server; its members take the
  /// weights behind it.
  void push(GroupStart& start, uint64_t updates) {
    uint64_t& version = version_[start.stage];
    for (const GroupMember& member : start.members) {
      const uint64_t age = version - taken_[member.replica.value].version;
      if (age > start.staleness) start.staleness = age;
    }
    version += updates;
    for (const GroupMember& member : start.members) {
      Taken& taken = taken_[member.replica.value];
      taken = {.version = version, .before = taken.version};
    }
  }

  /// The last group of that replica was aborted: it has kept its own weights.
  void keep(uint32_t stage, uint32_t pipeline) {
    Taken& taken = taken_[layout_.replica(stage, pipeline).value];
    taken.version = taken.before;
  }

 private:
  struct Taken {
    uint64_t version = 0;
    uint64_t before = 0;
  };

  PipelineLayout layout_;
  std::vector<uint64_t> version_;  // [stages] updates started.
  std::vector<Taken> taken_;       // [replicas]
};

}  // namespace skein::plans
