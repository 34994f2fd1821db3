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
#include "plans/modes/claim_pool.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Which samples are in whose weights, under local updates. What must hold:
///   samples   of a round are in the weights of every replica that has the global average, at every
///             stage, whoever died
/// Claims stand for their samples. Single-threaded.
class CarriedSamples {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  explicit CarriedSamples(OnViolation on_violation) : on_violation_(std::move(on_violation)) {}

  void on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica, int32_t stage);
  void on_control(const net::schema::Envelope::Reader& envelope, bool arrives);
  /// The device is given an update, and ends that of a claim.
  void on_update_begun(ProcessId process);
  void on_update(ProcessId process, const plans::SampleClaim& claim);
  /// The device has copied what the process puts into the group.
  void on_copied(ProcessId process, uint64_t number);
  /// The round with these claims, by first sample, is journaled.
  void on_round(const std::set<uint64_t>& claims);

 private:
  using Samples = std::set<uint64_t>;
  struct Replica {
    ProcessId process = 0;
    int32_t stage = 0;
    Samples own;                   // In its weights.
    Samples pending, being_added;  // What comes with an update, as it was non-blocking in a group.
    bool has_common = false;
  };
  struct Group {
    std::set<plans::ReplicaId> members;
    std::set<plans::ReplicaId> through;
    bool has_server = false;
    bool is_global = false;
    Samples served;  // By the server, when the group began.
    std::set<plans::ReplicaId> nonblocking;
    std::map<plans::ReplicaId, Samples> inputs;  // As copied.
    std::optional<Samples> result;               // Once somebody is through.
  };

  void on_average(const net::schema::Average::Reader& average);
  void on_averaged(const net::schema::Averaged::Reader& averaged);
  Samples input_of(const Replica& replica) const;

  const OnViolation on_violation_;
  uint64_t generation_ = 0;
  std::map<plans::ReplicaId, Replica> replicas_;
  std::map<uint64_t, Group> groups_;    // By number.
  std::map<int32_t, Samples> servers_;  // By stage: what is in all shards.
};

}  // namespace skein::sim
