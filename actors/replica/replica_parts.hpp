#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "actors/averaging/stage_averages.hpp"
#include "actors/replica/device_operations.hpp"
#include "actors/replica/device_work.hpp"
#include "actors/replica/link_transfers.hpp"
#include "actors/replica/reductions.hpp"
#include "actors/replica/replica_config.hpp"
#include "actors/replica/stage_replica.hpp"
#include "actors/replica/state_copies.hpp"
#include "actors/replica/step_trace.hpp"
#include "actors/replica/tensor_traffic.hpp"
#include "actors/replica/token_traffic.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::actors {

/// The components of a Replica. Owned by one actor; touched only from its handlers.
struct ReplicaParts {
  StageReplicas replicas;  // The others keep a reference to them.
  std::unique_ptr<DeviceWork> device;
  std::unique_ptr<TensorTraffic> traffic;
  std::unique_ptr<TokenTraffic> tokens;  // Null: outputs follow the routes of the plan.
  std::unique_ptr<DeviceOperations> operations;
  std::unique_ptr<Reductions> reductions;
  std::unique_ptr<LinkTransfers> links;
  std::unique_ptr<StateCopies> copies;
  std::map<int32_t, std::unique_ptr<StageAverages>> averages;  // By stage; empty in some modes.
  StepTrace trace;

  /// Null: no replica of that id is here, or the training mode averages no weights.
  StageAverages* averages_of(plans::ReplicaId id) const;
  /// Lets go of the models and of the memory beside them. Nothing is under way.
  void clear();
};

/// How the components reach their actor and those that it knows.
struct ReplicaHooks {
  std::function<uint64_t()> now_us;
  std::function<void(uint64_t token, gpu::Work work, Outgoing output)> submit;
  OnTensor on_tensor;
  std::function<void(const net::TensorKey&, net::TensorHandle)> on_chunk;  // The same.
  std::function<void(plans::GroupId, const ReductionRequest&)> reduce;
  std::function<void(int32_t front, const TransferRequest&)> transfer;
  std::function<void(const absl::Status&)> fail;
  std::function<void(const StageAverages::Ended&)> on_average_ended;
  ShardListener shard_listener;
};

/// Makes the components of the replicas in `config`, and opens the streams of what will arrive.
void open(ReplicaParts& parts, const ReplicaConfig& config, const ReplicaHooks& hooks,
          const plans::WorkerProgram& program);

}  // namespace skein::actors
