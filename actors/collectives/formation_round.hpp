#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/collectives/device_group_store.hpp"
#include "actors/collectives/gradient_path.hpp"
#include "gpu/device.hpp"
#include "net/reduce/gradient_group.hpp"
#include "plans/base/ids.hpp"
#include "plans/collectives/device_groups.hpp"

namespace skein::actors {

/// A round in which the workers of a plan form its groups: each tells the round's leader what its
/// device has and which groups it keeps, on the rendezvous store, which is the authenticated
/// control connection. When it has heard all, the leader decides for all groups and tells the
/// members of each. So there are two messages for a worker and one for each group that it is in.
/// Thread-safe; shared by the groups of one worker.
class FormationRound {
 public:
  struct Options {
    std::string name;  // The same on all, from the plan: keys on the rendezvous store are under it.
    plans::WorkerId self;
    plans::WorkerId leader;
    std::vector<plans::DeviceGroupPart> groups;  // This worker's; the leader's: all of the plan.
    std::string backend;                         // comm.backend
    double appear_timeout_seconds = 60;          // For the others to tell.
    std::shared_ptr<gpu::Device> device;
    std::shared_ptr<DeviceGroupStore> group_store;
  };
  /// How one of this worker's groups comes about.
  struct Outcome {
    GroupDecision decision;
    plans::DeviceGroupPart group;
    /// kCached: the group, in use from now on. kShrink, kSplit: the parent, nobody else's now.
    std::shared_ptr<gpu::DeviceGroup> from;
    plans::FormedGroup parent;
  };

  FormationRound(Options options, std::shared_ptr<net::RendezvousStore> store);
  ~FormationRound();

  bool leads() const { return options_.self == options_.leader; }
  /// Tells the leader what this worker has, the first time, and returns it.
  PathEntry tell();
  /// The leader's part, the first time: waits for the words of all members of all groups, and tells
  /// them. Nothing on others. Unavailable, DeadlineExceeded or Cancelled.
  absl::Status lead();
  /// For a group of this worker, once; waits for the leader's word on all of them.
  /// InvalidArgument as `choose_gradient_path`; Unavailable, DeadlineExceeded or Cancelled.
  absl::StatusOr<Outcome> decide(plans::GroupId group);
  /// Every wait fails, now and later.
  void abort();

 private:
  using Entries = std::map<plans::WorkerId, PathEntry>;

  PathEntry own_entry() const;
  std::string key_of(plans::WorkerId worker) const;
  std::string key_of(plans::GroupId group) const;
  absl::StatusOr<Entries> hear() const;
  GroupDecision path_of(const plans::DeviceGroupPart& group,
                        const std::vector<PathEntry>& entries) const;
  std::vector<GroupDecision> decide_all(const Entries& entries) const;
  absl::Status lead_once();  // Under `decide_mutex_`.
  absl::StatusOr<GroupDecision> decision_of(plans::GroupId group) const;
  absl::Status settle();
  absl::Status claim(Outcome& outcome) const;

  const Options options_;
  const std::shared_ptr<net::RendezvousStore> store_;
  std::mutex tell_mutex_;
  bool has_told_ = false;
  PathEntry own_;

  std::mutex decide_mutex_;  // Held while it waits: whoever else comes needs the same words.
  bool has_led_ = false, is_settled_ = false;
  absl::Status led_, settled_;
  std::map<plans::GroupId, absl::StatusOr<Outcome>> outcomes_;  // That were not asked for yet.
};

/// Puts an entry for those of `members` that are not `self`.
void put_for_members(net::RendezvousStore& store, plans::WorkerId self, const std::string& key,
                     const std::string& value, const std::vector<plans::WorkerId>& members);

}  // namespace skein::actors
