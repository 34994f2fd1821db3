// What a rank of a column of its own pace does: leases, its own commits, groups that combine
// weights.

#include <algorithm>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/averaging/model_floats.hpp"
#include "actors/replica/rank.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::actors {
namespace {

enum ColumnWork : uint64_t { kCopy, kWrite, kFirstCopy, kColumnWorks };

ModelFloats floats_of(const Combination& combination, const plans::JobSpec& job) {
  const bool with_moments = combination.is_common || job.sync.average_moments;
  return with_moments ? ModelFloats::kWithMoments : ModelFloats::kWeights;
}

/// values += addend, which may be shorter.
void add(std::vector<float>& values, const std::vector<float>& addend) {
  for (size_t i = 0; i < addend.size(); ++i) values[i] += addend[i];
}

}  // namespace

void RankState::open_exchange(HeldReplica& replica) {
  WeightStreams streams;
  streams.plane = config.plane;
  streams.generation = config.plan.generation;
  streams.self = replica.parts.id;
  for (const auto& each : config.plan.stages[static_cast<size_t>(replica.stage)].replicas) {
    const auto address = config.addresses.find(each.worker);
    if (address != config.addresses.end()) streams.addresses[each.id] = address->second;
  }
  streams.on_chunk = [to = Rank(self)](const net::TensorKey& key, net::TensorHandle chunk) {
    caf::anon_send(to, ChunkArrived{key, std::move(chunk)});
  };
  const gpu::StageModel& model = *replica.parts.model;
  if (plans::has_server(config.job)) {
    replica.server = std::make_unique<WeightServer>(
        WeightServer::Options{streams, float_count(model, ModelFloats::kWeights)});
  }
  replica.exchange = std::make_unique<WeightExchange>(
      WeightExchange::Options{std::move(streams), float_count(model, ModelFloats::kWithMoments)});
}

void RankState::begin_serving() {
  for (auto& [stage, replica] : held) {
    if (replica.server) begin_serving(replica);
  }
}

/// The segment's first weights, which all columns have, are the server's: copied before the device
/// does anything else.
void RankState::begin_serving(HeldReplica& replica) {
  replica.taken = std::make_shared<std::vector<float>>();
  gpu::Work work;
  work.run = [model = replica.parts.model, to = replica.taken](gpu::Ops&) {
    return read_floats(*model, ModelFloats::kWeights, *to);
  };
  submit_column_work(kFirstCopy, replica.stage, std::move(work));
}

/// What the exchange and the server take for granted.
bool RankState::is_group(const HeldReplica& replica, const Combination& combination) const {
  const auto& members = combination.members;
  const auto& known = config.plan.stages[static_cast<size_t>(replica.stage)].replicas;
  for (size_t m = 0; m < members.size(); ++m) {
    if (m > 0 && !(members[m - 1].replica < members[m].replica)) return false;
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& each) {
      return each.id == members[m].replica;
    });
    if (!is_known) return false;
  }
  return !members.empty() && (!combination.has_server || replica.server);
}

HeldReplica* RankState::find_replica(plans::ReplicaId id) {
  for (auto& [stage, replica] : held) {
    if (replica.parts.id == id) return &replica;
  }
  return nullptr;
}

/// True if the message was one for columns.
bool RankState::on_column_control(const net::ControlBody& body) {
  if (!program->is_column()) return false;
  if (const auto* claim = std::get_if<net::Claim>(&body)) {
    on_lease(*claim);
  } else if (const auto* commit = std::get_if<net::CommitUpdate>(&body)) {
    on_column_commit(*commit);
  } else if (const auto* average = std::get_if<net::Average>(&body)) {
    on_combine(*average);
  } else if (const auto* abort = std::get_if<net::AbortGroup>(&body)) {
    on_dissolve(*abort);
  } else {
    return false;
  }
  return true;
}

void RankState::end_profiled_step(uint64_t step, bool profiles_next) {
  for (const auto& [stage, replica] : held) {
    record(stage, "commit", 4, replica.ready_us, now_us(), -1);
  }
  if (profiles) send_timings(step);
  profiles = profiles_next;
  step_start_us = now_us();
}

void RankState::on_lease(const net::Claim& claim) {
  if (program->may_begin(claim.step)) profiles = claim.profile;
  const plans::RankCommands commands = program->on_lease(claim.step, claim.samples);
  if (commands.empty()) return;
  step_start_us = now_us();
  apply(commands);
}

void RankState::on_column_commit(const net::CommitUpdate& commit) {
  const plans::RankCommands commands =
      program->on_column_commit(commit.step, commit.gradient_norm, commit.next);
  if (commands.empty()) return;
  end_profiled_step(commit.step, commit.profile);
  apply(commands);
}

void RankState::on_combine(const net::Average& average) {
  HeldReplica* replica = find_replica(average.replica);
  if (!replica) return;
  Combination combination;
  combination.number = average.number;
  combination.stage = replica->stage;
  combination.members = average.members;
  combination.is_passive = average.is_passive;
  combination.is_common = average.is_common;
  combination.has_server = average.has_server;
  combination.staleness = average.staleness;
  const bool is_repeat = combination.number <= replica->newest_group;
  if (is_repeat || !is_group(*replica, combination)) return;
  replica->newest_group = combination.number;
  if (combination.has_server) {
    on_pulled(*replica, replica->server->serve(combination.number, combination.members));
    const auto& members = combination.members;
    const bool is_member = std::any_of(members.begin(), members.end(), [&](const auto& each) {
      return each.replica == replica->parts.id;
    });
    if (!is_member) return;  // It is a shard only.
  }
  if (combination.is_passive) {
    if (replica->combination) return;  // No policy begins a second group.
    replica->combination = std::move(combination);
    return begin_combination(*replica);
  }
  plans::CombineOrder order;
  order.stage = combination.stage;
  order.number = combination.number;
  order.is_closing = average.is_closing;
  order.is_common = combination.is_common;
  order.is_alone =
      combination.members.size() < 2 && !combination.is_common && !combination.has_server;
  order.steps_done = average.steps_done;
  if (!order.is_alone) offered[order.number] = std::move(combination);
  const uint64_t dropped = program->dropped();
  const plans::RankCommands commands = program->on_combine(order);
  if (program->dropped() != dropped) offered.erase(order.number);
  apply(commands);
}

void RankState::carry_out(const plans::RunCombination& command) {
  HeldReplica& replica = held.at(command.stage);
  auto offer = offered.extract(command.number);
  SKEIN_CHECK(!offer.empty() && !replica.combination)
      << "group " << command.number << " was not offered to stage " << command.stage;
  replica.combination = std::move(offer.mapped());
  if (dissolved.erase(command.number) > 0) return end_combination(replica, false);
  if (command.is_common && replica.combination->members.size() < 2) {
    return end_combination(replica, true);
  }
  begin_combination(replica);
}

/// Copies what we put in: as work of the device, so that it is behind the update.
void RankState::begin_combination(HeldReplica& replica) {
  Combination& own = *replica.combination;
  own.own = std::make_shared<std::vector<float>>();
  own.pending = replica.pending;
  if (!own.is_passive) replica.pending.reset();  // The result has it.
  reduce_start_us[plans::GroupId{static_cast<uint32_t>(replica.stage)}] = now_us();
  gpu::Work work;
  work.name = absl::StrCat("combine", own.number);
  work.run = [model = replica.parts.model, which = floats_of(own, config.job), to = own.own,
              pending = own.pending](gpu::Ops&) -> absl::Status {
    SKEIN_RETURN_IF_ERROR(read_floats(*model, which, *to));
    if (pending) add(*to, *pending);
    return absl::OkStatus();
  };
  submit_column_work(kCopy, replica.stage, std::move(work));
}

void RankState::submit_column_work(uint64_t what, int32_t stage, gpu::Work work) {
  submit_aside(kColumnWork + static_cast<uint64_t>(stage) * kColumnWorks + what, std::move(work));
}

void RankState::on_column_work(uint64_t number) {
  if (retires) return;
  HeldReplica& replica = held.at(static_cast<int32_t>(number / kColumnWorks));
  if (number % kColumnWorks == kWrite) return end_combination(replica, true);
  if (number % kColumnWorks == kFirstCopy) {
    return on_pulled(replica, replica.server->resume(*replica.taken));
  }
  if (replica.void_copies > 0) {
    --replica.void_copies;
    return;
  }
  Combination& own = *replica.combination;
  own.is_copied = true;
  if (own.has_server) {
    for (size_t i = 0; i < own.own->size(); ++i) (*own.own)[i] -= (*replica.taken)[i];
    return on_pulled(replica, replica.server->push(own.number, *own.own));
  }
  // A passive member needs what it has put in, to know what the others add.
  std::vector<float> values = own.is_passive ? *own.own : std::move(*own.own);
  std::optional<WeightExchange::Done> done =
      replica.exchange->begin(own.number, own.members, std::move(values));
  reach(config.fail_point, FailPlace::kDuringReduction);
  if (done) on_exchanged(replica, std::move(done->values));
}

void RankState::on_chunk(const ChunkArrived& arrived) {
  if (retires) return;
  HeldReplica* replica = find_replica(plans::ReplicaId{arrived.key.receiver});
  if (!replica) return;
  const bool is_for_server = arrived.key.kind == net::schema::TensorKind::PUSH ||
                             arrived.key.kind == net::schema::TensorKind::PULL;
  if (is_for_server) {
    if (replica->server) on_pulled(*replica, replica->server->on_chunk(arrived.key, arrived.chunk));
    return;
  }
  std::optional<WeightExchange::Done> done =
      replica->exchange->on_chunk(arrived.key, arrived.chunk);
  if (done) on_exchanged(*replica, std::move(done->values));
}

/// The server's weights, if they are all there.
void RankState::on_pulled(HeldReplica& replica, std::optional<WeightServer::Done> done) {
  if (!done || !replica.combination || replica.combination->number != done->number) return;
  *replica.taken = done->weights;
  on_exchanged(replica, std::move(done->weights));
}

void RankState::on_exchanged(HeldReplica& replica, std::vector<float> values) {
  Combination& own = *replica.combination;
  if (own.is_passive) {
    // The step in progress goes on with its weights; the difference comes on top of its update.
    for (size_t i = 0; i < values.size(); ++i) values[i] -= (*own.own)[i];
    if (replica.pending) add(values, *replica.pending);
    replica.pending = std::make_shared<const std::vector<float>>(std::move(values));
    return end_combination(replica, true);
  }
  own.is_written = true;
  gpu::Work work;
  work.run = [model = replica.parts.model, which = floats_of(own, config.job),
              result = std::make_shared<std::vector<float>>(std::move(values))](gpu::Ops&) {
    return write_floats(*model, which, *result);
  };
  submit_column_work(kWrite, replica.stage, std::move(work));
}

void RankState::on_dissolve(const net::AbortGroup& abort) {
  HeldReplica* replica = find_replica(abort.replica);
  if (!replica) return;
  const uint64_t number = abort.number;
  if (offered.contains(number)) {
    dissolved.insert(number);
    return;
  }
  if (!replica->combination || replica->combination->number != number ||
      replica->combination->is_written) {
    return;  // It is through.
  }
  if (replica->combination->has_server) {
    replica->server->dissolve(number);
  } else {
    replica->exchange->dissolve(number);
  }
  if (!replica->combination->is_copied) ++replica->void_copies;
  if (!replica->combination->is_passive) replica->pending = replica->combination->pending;
  end_combination(*replica, false);
}

void RankState::end_combination(HeldReplica& replica, bool ok) {
  const Combination ended = *std::exchange(replica.combination, std::nullopt);
  if (ok) replica.staleness = ended.staleness;
  if (ended.own) {
    record(replica.stage, "combine", 3,
           reduce_start_us[plans::GroupId{static_cast<uint32_t>(replica.stage)}], now_us(), -1);
  }
  report(net::Averaged{replica.parts.id, ended.number, ok});
  if (ended.is_common && replica.server) replica.server->suspend();
  if (!ended.is_passive) apply(program->on_combined(ended.stage, ended.number, ok));
}

}  // namespace skein::actors
