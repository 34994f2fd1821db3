#include "actors/replica/replica_parts.hpp"

#include <set>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::actors {
namespace {

void open_averages(ReplicaParts& parts, const ReplicaConfig& config, const ReplicaHooks& hooks,
                   const StageReplica& replica) {
  StageAverages::Options options;
  options.stage = replica.stage;
  options.model = replica.parts.model;
  options.streams.plane = config.plane;
  options.streams.generation = config.plan.generation;
  options.streams.self = replica.parts.id;
  for (const auto& each : plans::stage_at(config.plan, replica.stage).replicas) {
    options.stage_replicas.push_back(each.id);
    const auto address = config.addresses.find(each.worker);
    if (address != config.addresses.end()) options.streams.addresses[each.id] = address->second;
  }
  options.streams.on_chunk = hooks.on_chunk;
  options.has_server = plans::has_server(config.job);
  options.averages_moments = config.job.sync.average_moments;
  options.reduces_by_adasum = config.job.sync.round_reducer == "adasum";
  if (replica.tied_end) {
    StageAverages::TiedEnd tied;
    tied.is_first = replica.stage == 0;
    tied.other = *replica.tied_end;
    tied.floats = static_cast<size_t>(config.job.model.vocab_size * config.job.model.channels);
    if (!find_replica(parts.replicas, tied.other)) {
      tied.address = config.addresses.at(plans::replica_of(config.plan, tied.other).worker);
    }
    options.tied = std::move(tied);
  }
  options.fail_point = config.fail_point;
  options.submit = [device = parts.device.get(), stage = replica.stage](StageAverages::Work what,
                                                                        gpu::Work work) {
    const uint64_t number =
        static_cast<uint64_t>(stage) * StageAverages::kWorks + static_cast<uint64_t>(what);
    device->submit_aside(DeviceWork::kAverage + number, std::move(work));
  };
  options.on_ended = hooks.on_average_ended;
  options.now_us = hooks.now_us;
  parts.averages[replica.stage] = std::make_unique<StageAverages>(std::move(options));
}

}  // namespace

StageAverages* ReplicaParts::averages_of(plans::ReplicaId id) const {
  const StageReplica* replica = find_replica(replicas, id);
  const auto own = replica ? averages.find(replica->stage) : averages.end();
  return own == averages.end() ? nullptr : own->second.get();
}

void ReplicaParts::clear() {
  links->clear();
  averages.clear();
  copies.reset();
  tokens.reset();
  traffic.reset();
  replicas.clear();
}

void open(ReplicaParts& parts, const ReplicaConfig& config, const ReplicaHooks& hooks,
          const plans::WorkerProgram& program) {
  const plans::PlanPart& plan = config.plan;
  const plans::WorkerId worker = plans::replica_of(plan, config.replicas.front().id).worker;
  const int64_t row_floats = config.job.training.seq_len * config.job.model.channels;
  const int64_t tied_floats = config.job.model.vocab_size * config.job.model.channels;
  std::set<int32_t> linked;
  for (const auto& [front, link] : config.links) linked.insert(front);
  for (const auto& [stage, replica] : parts.replicas) parts.trace.add_stage(stage);
  parts.device = std::make_unique<DeviceWork>(
      DeviceWork::Options{plan, worker, hooks.submit, hooks.now_us, !program.moves_tokens()});
  parts.traffic = std::make_unique<TensorTraffic>(
      TensorTraffic::Options{plan, row_floats, tied_floats, linked, config.device, config.plane,
                             config.addresses, hooks.on_tensor, !program.moves_tokens()},
      parts.replicas);
  if (program.moves_tokens()) {
    parts.tokens = std::make_unique<TokenTraffic>(
        TokenTraffic::Options{plan, row_floats, config.device, config.plane, config.addresses,
                              hooks.on_tensor},
        parts.replicas);
  }
  const bool shares_device = !config.device_groups.empty() || !config.links.empty();
  SKEIN_CHECK(!shares_device || plan.device_leader.value != 0) << "devices share unknown groups";
  parts.operations = std::make_unique<DeviceOperations>(
      shares_device ? plans::communication_places(plan, worker) : plans::CommunicationPlaces(),
      [&parts](const plans::CollectiveKey& key) {
        const bool begins = parts.links->begin(key) || parts.reductions->begin(key);
        SKEIN_CHECK(begins) << "an operation begins that is not ready";
      });
  parts.reductions = std::make_unique<Reductions>(
      Reductions::Options{plan, config.device_groups, hooks.reduce, hooks.now_us}, parts.replicas,
      *parts.operations);
  parts.links = std::make_unique<LinkTransfers>(
      LinkTransfers::Options{plan, row_floats, linked, config.link_memory, hooks.transfer,
                             hooks.fail, hooks.now_us},
      parts.replicas, *parts.operations);
  parts.copies = std::make_unique<StateCopies>(
      StateCopies::Options{config.job.model, config.device, plan.generation, config.shards,
                           config.snapshot_addresses, hooks.shard_listener,
                           SnapshotListener(config.listener)},
      parts.replicas);
  if (!program.averages_weights()) return;
  for (const auto& [stage, replica] : parts.replicas) {
    open_averages(parts, config, hooks, replica);
  }
}

}  // namespace skein::actors
