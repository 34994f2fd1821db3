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

namespace skein::actors {

/// A round in which the workers of a plan form its groups: each tells once what its device has and
/// which groups it keeps, on the rendezvous store, which is the authenticated control connection.
/// When all have, each decides for all groups from the same words, so alike. Thread-safe; shared by
/// the groups of one worker.
class FormationRound {
 public:
  enum class Use { kSum, kOtherReducer, kActivations };
  struct Wanted {
    std::vector<plans::WorkerId> members;  // >= 2, by rank.
    Use use = Use::kSum;
  };
  struct Options {
    std::string name;  // The same on all, from the plan: keys on the rendezvous store are under it.
    plans::WorkerId self;
    std::map<plans::GroupId, Wanted> wanted;
    std::set<plans::WorkerId> workers;   // The plan's.
    std::string backend;                 // comm.backend
    double appear_timeout_seconds = 60;  // For the others to tell.
    std::shared_ptr<gpu::Device> device;
    std::shared_ptr<DeviceGroupStore> group_store;
  };
  /// How one of this worker's groups comes about.
  struct Outcome {
    GradientPath path;
    gpu::NumberType activations = gpu::NumberType::kFloat32;  // As which a link passes them on.
    std::vector<plans::WorkerId> members;  // Ascending: by their rank in the devices' group.
    plans::Formation formation;            // path.on_device
    /// kCached: the group, in use from now on. kShrink, kSplit: the parent, nobody else's now.
    std::shared_ptr<gpu::DeviceGroup> from;
    plans::FormedGroup parent;
  };

  FormationRound(Options options, std::shared_ptr<net::RendezvousStore> store);
  ~FormationRound();

  /// Tells the others what this worker has, the first time, and returns it.
  PathEntry tell();
  /// For a group of this worker, once; waits for the words of all members of all groups.
  /// InvalidArgument as `choose_gradient_path`; Unavailable, DeadlineExceeded or Cancelled.
  absl::StatusOr<Outcome> decide(plans::GroupId group);
  /// Every wait fails, now and later.
  void abort();

 private:
  PathEntry own_entry() const;
  std::vector<PathEntry> entries_of(const Wanted& wanted) const;
  absl::StatusOr<GradientPath> path_of(const Wanted& wanted) const;
  std::string key_of(plans::WorkerId worker) const;
  absl::Status hear();
  void settle();
  void claim(plans::GroupId group, Outcome& outcome);

  const Options options_;
  const std::shared_ptr<net::RendezvousStore> store_;
  std::mutex tell_mutex_;
  bool has_told_ = false;
  PathEntry own_;

  std::mutex decide_mutex_;  // Held while it waits: whoever else comes needs the same words.
  bool is_settled_ = false;
  absl::Status heard_;
  std::map<plans::WorkerId, PathEntry> entries_;
  std::map<plans::GroupId, absl::StatusOr<Outcome>> outcomes_;  // That were not asked for yet.
};

}  // namespace skein::actors
