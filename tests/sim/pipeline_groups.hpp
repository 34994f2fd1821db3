#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/model/stage_model.hpp"
#include "net/codec/envelope.hpp"
#include "plans/base/ids.hpp"
#include "tests/sim/watched_model.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// What the groups make of the weights of pipeline replicas under local updates. What must hold:
///   one group  at a time for a replica
///   averages   the weights of a group's members add up to 1, and who says that it went well has
///             the weighted sum of what the members had when their devices copied it, and the bits
///             of the others who say so; at the end of a round also of the moments. Where rounds
///             are reduced by Adasum, the weights are those of the round's beginning and Adasum of
///             what the members have added, tensor by tensor, instead. An average may
///             have the contribution of a member for which the group was aborted, and which has
///             gone on since.
///   aborts    a member's group fails only if the coordinator has aborted it, and leaves the member
///             the weights and moments that it had
///   non-blocking    what the others add to the contribution of such a member is added to its next
///             update, once
///   updates   with SGD, whose velocity says what it takes off, leave nothing else in the weights
///   servers   have, when all have pushed at the end of a round, the weights of its beginning and
///             all weighted updates that were pushed, unless a push was aborted. What a member
///             pulls before depends on groups that are under way at the same time.
/// Single-threaded.
class PipelineGroups {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  /// A replica has the global average, which is the state after so many steps of the job.
  using OnGlobal =
      std::function<void(ProcessId process, plans::ReplicaId replica, uint64_t steps_done)>;
  PipelineGroups(bool reduces_by_adasum, OnViolation on_violation, OnGlobal on_global)
      : reduces_by_adasum_(reduces_by_adasum),
        on_violation_(std::move(on_violation)),
        on_global_(std::move(on_global)) {}

  /// The replica has this model from now on. Those of older generations are forgotten.
  void on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica, int32_t stage,
                   std::shared_ptr<gpu::StageModel> model);
  void on_control(ProcessId from, const net::schema::Envelope::Reader& envelope, bool arrives);
  /// From now on nobody says that a group is over: what it adds to a member is not known.
  void on_coordinator_killed() { is_unheard_ = true; }
  /// The coordinator has given the process up: nobody hears what its groups have come to.
  void on_lost(ProcessId process);
  /// The device is given an update, and ends it.
  void on_update_begun(ProcessId process);
  /// `sgd_lr`: the learning rate of the update; none: it is not known, or not SGD's.
  void on_update(ProcessId process, std::optional<double> sgd_lr);
  /// The device has copied what the process puts into the group.
  void on_copied(ProcessId process, uint64_t number);

 private:
  using Values = std::vector<double>;
  struct Member {
    ProcessId process = 0;
    bool is_unheard = false;  // The coordinator has given it up.
    int32_t stage = 0;
    WatchedModel model;
    std::vector<size_t> floats;    // In each of its parameters.
    std::vector<float> values;     // Weights and moments after its last update or group.
    std::optional<uint64_t> open;  // Number of the group that it is in.
    // Groups in which it was non-blocking, and what they add is not in `values`.
    std::vector<uint64_t> pending;
    std::vector<uint64_t> being_added;  // By the update that the device has.
    std::vector<float> taken;           // Weights of the server that it had last.
    std::vector<float> first;           // Weights with which its round began.
  };
  struct Group {
    std::map<plans::ReplicaId, double> weights;
    std::vector<plans::ReplicaId> order;  // As the members were named.
    bool has_server = false;
    bool is_global = false;
    bool is_closing = false;
    size_t through = 0;  // Members, of a server's group.
    uint64_t steps_done = 0;
    bool is_known = false;  // What is expected, once somebody is through.
    // Of weights, at the end of a round also of moments. None: nothing can be said of it.
    std::optional<Values> expected;
    std::vector<float> result;  // The first member's that was not non-blocking.
    bool is_aborted = false;    // The coordinator has said so to somebody.
    std::set<plans::ReplicaId> nonblocking;
    std::map<plans::ReplicaId, std::optional<Values>> inputs;  // As copied; none: unknown.
  };

  /// The parameter server of a stage.
  struct Server {
    Values weights;
    uint64_t first_group = 0;  // Older ones have pushed to the one before.
    bool is_known = true;
  };

  void on_average(const net::schema::Average::Reader& average);
  void on_averaged(ProcessId from, const net::schema::Averaged::Reader& averaged);
  void on_failed(uint64_t number, plans::ReplicaId replica);
  void check_unchanged(plans::ReplicaId replica, uint64_t number);
  std::optional<Values> input_of(plans::ReplicaId replica, bool with_moments) const;
  bool add_gain(uint64_t number, plans::ReplicaId replica, Values& to) const;
  std::optional<std::vector<Values>> inputs_of(uint64_t number, const Group& group) const;
  Values result_of(const Group& group, const std::vector<Values>& inputs) const;
  Values adasum_of(const Member& member, const std::vector<Values>& inputs) const;
  void expect(uint64_t number, Group& group);
  void check_update(plans::ReplicaId replica, const std::vector<float>& values, double lr);
  void on_pushed(uint64_t number, Group& group, plans::ReplicaId replica);
  void check_server(uint64_t number, const Group& group, const Server& server);
  void check(uint64_t number, Group& group, plans::ReplicaId replica,
             const std::vector<float>& values);

  const bool reduces_by_adasum_;
  const OnViolation on_violation_;
  const OnGlobal on_global_;
  uint64_t generation_ = 0;
  bool is_unheard_ = false;  // In this generation a worker may have said what nobody could hear.
  std::map<plans::ReplicaId, Member> members_;
  std::map<uint64_t, Group> groups_;   // By number.
  std::map<int32_t, Server> servers_;  // By stage.
};

}  // namespace skein::sim
