#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/codec/envelope.hpp"
#include "plans/base/ids.hpp"
#include "plans/modes/lease_pool.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Which samples are in whose weights, of columns that have their own pace. What must hold:
///   samples   of a segment are in the weights of every replica that has the common mean, at every
///             stage, whoever died
/// Leases stand for their samples. Single-threaded.
class CarriedSamples {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  explicit CarriedSamples(OnViolation on_violation) : on_violation_(std::move(on_violation)) {}

  void on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica, int32_t stage);
  void on_control(const net::schema::Envelope::Reader& envelope, bool arrives);
  /// The device is given an update, and ends that of a lease.
  void on_update_begun(ProcessId process);
  void on_update(ProcessId process, const plans::SampleLease& lease);
  /// The segment with these leases, by first sample, is journaled.
  void on_segment(const std::set<uint64_t>& leases);

 private:
  using Samples = std::set<uint64_t>;
  struct Replica {
    ProcessId process = 0;
    int32_t stage = 0;
    Samples own;                   // In its weights.
    Samples pending, being_added;  // What comes with an update, as it was passive in a group.
    bool has_common = false;
  };
  struct Group {
    std::set<plans::ReplicaId> members;
    std::set<plans::ReplicaId> through;
    bool has_server = false;
    bool is_common = false;
    Samples served;                               // By the server, when the group began.
    std::map<plans::ReplicaId, Samples> passive;  // And what they put in, as the group began.
    std::optional<Samples> result;                // Once somebody is through.
  };

  void on_combine(const net::schema::Combine::Reader& combine);
  void on_combined(const net::schema::Combined::Reader& combined);
  Samples input_of(const Replica& replica) const;

  const OnViolation on_violation_;
  uint64_t generation_ = 0;
  std::map<plans::ReplicaId, Replica> replicas_;
  std::map<uint64_t, Group> groups_;    // By number.
  std::map<int32_t, Samples> servers_;  // By stage: what is in all shards.
};

}  // namespace skein::sim
