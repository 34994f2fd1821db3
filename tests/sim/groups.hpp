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

/// The gradient groups of all workers: what Gloo does in the product. Sums are taken in the order
/// of the members once all of them have asked; a member that dies or aborts fails the others, whose
/// values are then half spoilt.
class Groups {
 public:
  /// A member asks for another step or bucket than the others, or with another size.
  using OnViolation = std::function<void(const std::string& what)>;

  Groups(World& world, Network& network, OnViolation on_violation)
      : world_(world), network_(network), on_violation_(std::move(on_violation)) {}

  /// One member, as `WorkerParts::make_group` makes it.
  actors::GroupParts make_member(ProcessId process, plans::GroupId number,
                                 const net::GradientGroup::Options& options);
  void on_killed(ProcessId process, bool silent);
  void wind_up() { groups_.clear(); }

 private:
  using Done = std::function<void(absl::Status)>;
  struct Member {
    ProcessId process = 0;
    std::set<uint32_t> partners;  // With whom it connects, by rank.
    Done done;                    // Tells of what it waits for; null: nothing.
    bool formed = false;
    bool gone = false;                        // Aborted or dead.
    bool silent = false;                      // Dead, and nobody was told.
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
    uint64_t connect_us = 0;
    uint64_t round = 0;  // Number of reductions.
  };

  void join(const std::string& name, uint32_t rank, Done done);
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
};

}  // namespace skein::sim
