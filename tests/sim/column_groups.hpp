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
#include "net/envelope.hpp"
#include "plans/base/ids.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// What the groups make of the weights of columns that have their own pace. What must hold:
///   one group  at a time for a replica
///   averages   the weights of a group's members add up to 1, and who says that it went well has
///   the
///              weighted sum of what the members had, and the bits of the others who say so; at the
///              end of a segment also of the moments
/// Groups with passive members are left out: what those put in is seen nowhere. So are those of a
/// parameter server, but for the mean that ends a segment: what it has depends on its other groups.
/// Single-threaded.
class ColumnGroups {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  /// A replica has the common mean, which is the state after so many steps of the job.
  using OnCommon =
      std::function<void(ProcessId process, plans::ReplicaId replica, uint64_t steps_done)>;
  ColumnGroups(bool has_passive, OnViolation on_violation, OnCommon on_common)
      : has_passive_(has_passive),
        on_violation_(std::move(on_violation)),
        on_common_(std::move(on_common)) {}

  /// The replica has this model from now on. Those of older generations are forgotten.
  void on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica,
                   std::shared_ptr<gpu::StageModel> model);
  void on_control(ProcessId from, const net::schema::Envelope::Reader& envelope, bool arrives);
  void on_update(ProcessId process);

 private:
  struct Member {
    ProcessId process = 0;
    std::shared_ptr<gpu::StageModel> model;
    std::vector<float> values;     // Weights and moments that it would put in.
    std::optional<uint64_t> open;  // Number of the group that it is in.
  };
  struct Group {
    std::map<plans::ReplicaId, double> weights;
    std::set<plans::ReplicaId> passive;
    bool has_server = false;
    bool is_common = false;
    uint64_t steps_done = 0;
    std::optional<std::vector<double>> expected;  // Of who is through.
    std::vector<float> result;                    // Of the first one.
  };

  void on_combine(const net::schema::Combine::Reader& combine);
  void on_combined(ProcessId from, const net::schema::Combined::Reader& combined);
  void expect(Group& group);
  void check(uint64_t number, Group& group, plans::ReplicaId replica);

  const bool has_passive_;
  const OnViolation on_violation_;
  const OnCommon on_common_;
  uint64_t generation_ = 0;
  std::map<plans::ReplicaId, Member> members_;
  std::map<uint64_t, Group> groups_;  // By number.
};

}  // namespace skein::sim
