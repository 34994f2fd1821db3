#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Counts staleness again, from the list of all updates at a stage instead of from counters.
class ServerRecount {
 public:
  enum class Updates { kOfMembers, kOfGroups };

  ServerRecount(const PipelineLayout& layout, Updates updates)
      : layout_(layout), updates_(updates) {}

  void join(uint32_t pipeline) {
    for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
      taken_[layout_.replica(stage, pipeline)] = {log_[stage].size()};
    }
  }
  /// What the staleness of the group should be.
  uint64_t push(const GroupStart& start) {
    std::vector<uint64_t>& log = log_[start.stage];
    uint64_t oldest = log.size();
    for (const GroupMember& member : start.members) {
      auto& taken = taken_[member.replica];
      if (taken.empty()) taken.push_back(0);
      oldest = std::min<uint64_t>(oldest, taken.back());
    }
    const uint64_t staleness = log.size() - oldest;
    const size_t count = updates_ == Updates::kOfGroups ? 1 : start.members.size();
    log.insert(log.end(), count, start.number);
    for (const GroupMember& member : start.members) taken_[member.replica].push_back(log.size());
    return staleness;
  }
  void end(const GroupStart& start, bool ok) {
    if (ok) return;
    for (const GroupMember& member : start.members) {
      auto& taken = taken_[member.replica];
      if (taken.size() > 1) taken.pop_back();
    }
  }

 private:
  PipelineLayout layout_;
  Updates updates_;
  std::map<uint32_t, std::vector<uint64_t>> log_;     // By stage: the groups that pushed.
  std::map<ReplicaId, std::vector<uint64_t>> taken_;  // How long the log was then.
};

}  // namespace skein::plans
