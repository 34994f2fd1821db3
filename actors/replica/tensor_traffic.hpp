#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "actors/replica/outgoing.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/staging_pool.hpp"
#include "net/data/data_plane.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// Validation outputs that may wait at a slower neighbour.
inline constexpr uint32_t kValidationTensorsMax = 4;

/// Pooled memory as a tensor that gives it back with its last handle.

net::schema::TensorKind to_schema(plans::InputKind kind);
plans::InputKind from_schema(net::schema::TensorKind kind);

/// Activations, gradients and validation outputs that travel by way of the hosts or stay on this
/// one, and inputs that wait for their action. Owned by one actor; touched only from its handlers.
class TensorTraffic {
 public:
  struct Options {
    plans::PlanPart plan;
    int64_t row_floats = 0;    // T * C
    int64_t tied_floats = 0;   // V * C
    std::set<int32_t> linked;  // Stages in front of a link of devices.
    std::shared_ptr<gpu::Device> device;
    std::shared_ptr<net::DataPlane> plane;
    std::map<plans::WorkerId, std::string> addresses;  // The workers' data planes.
    OnTensor on_tensor;                                // What arrives.
    bool follows_routes = true;  // False: others send outputs, and open the streams of inputs.
  };
  TensorTraffic(Options options, const StageReplicas& replicas);

  /// What an arrived tensor is to the program.
  plans::InputKey input_key(const net::TensorKey& key) const;
  void keep(const plans::InputKey& key, net::TensorHandle tensor);
  /// Null: there is none, as for a stage that reads tokens.
  net::TensorHandle take(const plans::InputKey& key);

  /// Memory and destinations of an output that is about to be made; empty if nobody takes it.
  Outgoing outgoing(const StageReplica& from, net::schema::TensorKind kind, uint64_t step,
                    int32_t microbatch);
  /// Adds to an output what goes along to the other end of the pipeline: its weights from the first
  /// stage, its gradient from the last. Returns the memory to put it in.
  net::TensorHandle add_tied(const StageReplica& from, uint64_t step, Outgoing& out);

 private:
  void open_inputs(const StageReplica& replica);
  void open_tied(const StageReplica& replica);

  const Options options_;
  std::set<int32_t> handing_over_;  // Stages whose neighbour behind is here, with the same rows.
  std::map<int32_t, std::shared_ptr<gpu::StagingPool>> staging_;  // By stage.
  std::set<plans::ReplicaId> here_;                               // The replicas of this worker.
  std::shared_ptr<gpu::StagingPool> tied_staging_;       // Null: no replica here has a tied end.
  std::map<plans::InputKey, net::TensorHandle> inputs_;  // The program knows of each.
};

}  // namespace skein::actors
