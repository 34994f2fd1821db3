#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "actors/replica/outgoing.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/staging_pool.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// Outputs of tokens. An activation stays here until the coordinator says whom it goes to; a
/// gradient goes to those who hold the token's inputs, to each the rows of its own. They go by the
/// data plane, also to a replica of this worker: an input may be put together of outputs from here
/// and from elsewhere. Owned by one actor; touched only from its handlers.
class TokenTraffic {
 public:
  struct Options {
    plans::PlanPart plan;
    int64_t row_floats = 0;  // T * C
    std::shared_ptr<gpu::Device> device;
    std::shared_ptr<net::DataPlane> plane;
    std::map<plans::WorkerId, std::string> addresses;  // Data planes, with this worker's own.
    OnTensor on_tensor;                                // What arrives.
  };
  /// Opens the streams of the replicas' inputs.
  TokenTraffic(Options options, const StageReplicas& replicas);

  /// Memory of an activation that is about to be made; null in the last stage. Kept until `forget`.
  net::TensorHandle make_activation(const StageReplica& from, uint64_t step, int32_t token);
  /// The same activation with its destination. There is one.
  Outgoing activation(const StageReplica& from, const plans::SendOutput& output);
  /// Outputs of steps before this one are not wanted any more.
  void forget(uint64_t step);

  /// Memory and destinations of a gradient that is about to be made; empty in the first stage.
  Outgoing gradient(const StageReplica& from, uint64_t step, int32_t token,
                    const std::vector<plans::ReplicaId>& holders);
  /// The same of a piece of a validation, which goes to the next stage's first replica.
  Outgoing validation(const StageReplica& from, uint64_t step, int32_t piece);

 private:
  using Key = std::tuple<uint64_t, int32_t, int32_t>;  // Step, stage and token.

  void open(const StageReplica& replica, plans::InputKind kind, int64_t part_rows,
            uint32_t tensors_max);
  /// A whole output, which is a part of an input of the next stage's replica `to`. `number`: the
  /// token's, or that of a piece of a validation.
  net::DataPlane::Rows rows_to(plans::ReplicaId to, const StageReplica& from,
                               const net::TensorHandle& memory, net::schema::TensorKind kind,
                               uint64_t step, int32_t number) const;
  net::DataPlane::Rows rows_of(const StageReplica& from, const net::TensorHandle& memory,
                               const net::TensorKey& key, int64_t first, int64_t count) const;
  const std::string& address_of(plans::ReplicaId replica) const;
  int64_t rows_of_stage(int32_t stage) const;

  const Options options_;
  std::map<int32_t, std::shared_ptr<gpu::StagingPool>> staging_;  // By stage.
  std::map<Key, net::TensorHandle> activations_;
};

}  // namespace skein::actors
