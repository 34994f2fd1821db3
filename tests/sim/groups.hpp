#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "actors/worker/worker.hpp"
#include "tests/sim/network.hpp"

namespace skein::sim {

/// The gradient groups of all workers: what Gloo does in the product. Members find each other by
/// name, or by what they put on the product's rendezvous store, which goes from worker to worker
/// over the coordinator: who has heard of its partners connects with those who have heard of it.
/// Sums are taken in the order
/// of the members once all of them have asked; a member that dies or aborts fails the others, whose
/// values are then half spoilt.
class Groups {
 public:
  /// A member asks for another step or bucket than the others, or with another size.
  using OnViolation = std::function<void(const std::string& what)>;

  Groups(World& world, Network& network, OnViolation on_violation)
      : world_(world), network_(network), on_violation_(std::move(on_violation)) {}

  /// The rendezvous store of a worker.
  std::shared_ptr<net::RendezvousStore> make_store(net::RendezvousStore::Publish publish);
  /// One member, as `WorkerParts::make_group` makes it. `store`: null, or that of its worker.
  actors::GroupParts make_member(ProcessId process, plans::GroupId number,
                                 const net::GradientGroup::Options& options,
                                 std::shared_ptr<net::RendezvousStore> store);
  /// Some members of a group wait for others to appear, or have met while others have not.
  bool is_one_half_formed() const;
  /// Some members of a group have asked for a sum, and others have not.
  bool is_one_half_summed() const;
  /// The process has a member in a group that is half formed, or whose sum is half asked for.
  bool is_in_the_middle(ProcessId process) const;
  void on_killed(ProcessId process, bool silent);
  void wind_up() { groups_.clear(); }

 private:
  using Done = std::function<void(absl::Status)>;
  struct Member {
    ProcessId process = 0;
    std::map<uint32_t, plans::WorkerId> partners;  // With whom it connects, by rank.
    std::shared_ptr<net::RendezvousStore> store;   // Null: they meet by name.
    Done done;                                     // Tells of what it waits for; null: nothing.
    bool formed = false;                           // It has asked to be one of the group.
    bool has_heard = false;  // It knows by its store where all of its partners are.
    bool has_met = false;    // It is connected with them.
    bool gone = false;       // Aborted or dead.
    bool silent = false;     // Dead, and nobody was told.
    std::optional<uint64_t> parted_since_us;  // All are there, and it cannot connect.
    std::optional<uint64_t> step;             // The reduction that it has asked for.
    int32_t bucket = 0;
    bool is_float64 = false;  // What is added up; its memory is given as floats.
    std::span<float> values;
    std::vector<float> copy;  // The values when it asked.
  };
  struct Group {
    std::map<uint32_t, Member> members;  // By rank.
    uint32_t count = 0;
    bool formed = false;
    bool retries = false;
    uint64_t connect_us = 0;
    uint64_t round = 0;  // Number of reductions.
  };

  void join(const std::string& name, uint32_t rank, Done done);
  /// The same, of members that meet by their stores.
  void appear(const std::string& name, uint32_t rank);
  void try_meet(const std::string& name);
  void meet_all();
  /// It has heard of all of its partners.
  static bool hears(const std::string& name, uint32_t rank, const Member& member);
  bool can_connect(const std::string& name, uint32_t rank, const Member& member);
  void reduce(const std::string& name, uint32_t rank, const actors::ReductionRequest& request,
              Done done);
  void try_reduce(const std::string& name);
  void abort(const std::string& name, uint32_t rank);
  void finish(const std::string& name, uint32_t rank, const absl::Status& status,
              uint64_t delay_us);
  void spoil(Member& member) const;
  /// The others notice that a member has gone.
  void break_group(const std::string& name, const std::string& why);
  /// Two members who connect with one another cannot.
  bool is_parted(const Group& group) const;
  Member* find(const std::string& name, uint32_t rank);

  World& world_;
  Network& network_;
  OnViolation on_violation_;
  std::map<std::string, Group> groups_;
  std::set<std::string> forming_;  // Those whose members meet by their stores, and have not yet.
};

}  // namespace skein::sim
