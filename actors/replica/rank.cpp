#include "actors/replica/rank.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/learning_rate.hpp"

namespace skein::actors {
namespace {

/// Validation outputs that may wait at a slower neighbour.
constexpr uint32_t kValidationTensorsMax = 4;

net::schema::TensorKind to_schema(plans::InputKind kind) {
  switch (kind) {
    case plans::InputKind::kActivation:
      return net::schema::TensorKind::ACTIVATION;
    case plans::InputKind::kGradient:
      return net::schema::TensorKind::GRADIENT;
    case plans::InputKind::kValidation:
      return net::schema::TensorKind::VALIDATION;
  }
  return net::schema::TensorKind::ACTIVATION;
}

plans::InputKind from_schema(net::schema::TensorKind kind) {
  switch (kind) {
    case net::schema::TensorKind::ACTIVATION:
      return plans::InputKind::kActivation;
    case net::schema::TensorKind::GRADIENT:
      return plans::InputKind::kGradient;
    case net::schema::TensorKind::VALIDATION:
      return plans::InputKind::kValidation;
    default:
      break;  // Probes of links: no stream of a rank takes them.
  }
  return plans::InputKind::kActivation;
}

}  // namespace

Rank::behavior_type rank(Rank::stateful_pointer<RankState> self, RankConfig config) {
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const net::Envelope& message) { self->state.on_control(message); },
      [self](const InputArrived& arrived) { self->state.on_input(arrived); },
      [self](const WorkDone& done) { self->state.on_work_done(done); },
      [self](const ReductionDone& done) { self->state.on_reduction_done(done); },
      [self](const TransferDone& done) { self->state.on_transfer_done(done); },
      [self](const ShardWritten& written) { self->state.on_shard_written(written); },
      [self](const ClockOffset& offset) { self->state.clock_offset_us = offset.offset_us; },
      [self](const RetireRank& order) { self->state.on_retire(order); },
      [self](HeartbeatAtom) { self->state.tell_activity(); },
      [self](const ChunkArrived& arrived) { self->state.on_chunk(arrived); },
      [self](const TensorSent& sent) {
        self->state.record(sent.stage, sent.slice, 1, sent.start_us, self->state.now_us(),
                           sent.microbatch);
      },
  };
}

void RankState::start(RankConfig new_config) {
  config = std::move(new_config);
  SKEIN_CHECK(!config.replicas.empty()) << "a rank holds at least one replica";
  row_floats = config.job.training.seq_len * config.job.model.channels;
  const plans::Plan& plan = config.plan;
  plans::RankProgram::Options options;
  options.first_step = config.first_step;
  options.validation_batches = static_cast<int32_t>(config.job.validation.batches);
  options.reduces_early = plans::bucket_cap_mb(config.job) > 0;
  options.is_column = plan.in_columns;
  options.samples_per_step = static_cast<uint64_t>(config.job.training.global_batch_size);
  if (!config.device_groups.empty() || !config.links.empty()) {
    places = plans::communication_places(plan);
  }
  for (const PreparedReplica& parts : config.replicas) {
    hold(parts);
    plans::RankProgram::StageRole role;
    role.stage = plans::stage_of(plan, parts.id);
    const plans::StagePlan& stage_plan = plan.stages[static_cast<size_t>(role.stage)];
    options.actions = plan.actions[static_cast<size_t>(stage_plan.rank)];
    role.is_first = role.stage == 0;
    role.is_last = role.stage + 1 == static_cast<int32_t>(plan.stages.size());
    role.leads = stage_plan.replicas.front().id == parts.id;
    for (plans::GroupId group : parts.groups) {
      role.groups.push_back(role_in(group, held.at(role.stage)));
    }
    options.stages.push_back(std::move(role));
  }
  for (const plans::StagePlan& stage : plan.stages) {
    for (const plans::ReplicaPlan& each : stage.replicas) {
      worker_number_max = std::max(worker_number_max, static_cast<int32_t>(each.worker.value));
    }
  }
  program.emplace(std::move(options));
  for (auto& [stage, replica] : held) {
    open_inputs(replica);
    if (program->is_column()) open_exchange(replica);
  }
}

void RankState::hold(const PreparedReplica& parts) {
  const plans::Plan& plan = config.plan;
  HeldReplica replica;
  replica.parts = parts;
  replica.stage = plans::stage_of(plan, parts.id);
  replica.rows = plans::replica_of(plan, parts.id).rows;
  replica.routes_forward = plans::routes_from(plan, parts.id, +1);
  replica.routes_backward = plans::routes_from(plan, parts.id, -1);
  replica.staging = gpu::StagingPool::create(replica.rows.count * row_floats);
  if (is_linked(replica.stage)) {
    replica.device_tensors =
        gpu::DevicePool::create(config.device, replica.rows.count * row_floats);
  }
  const plans::LayerRange& layers = plan.stages[static_cast<size_t>(replica.stage)].layers;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    replica.snapshots[layer] =
        gpu::StagingPool::create(layer_state_floats(config.job.model, layer));
  }
  replica.block_count = block_count(config.job.model, layers);
  replica.row_share = static_cast<double>(replica.rows.count) /
                      static_cast<double>(config.job.training.micro_batch_size);
  replica.buckets =
      plans::gradient_buckets(config.job.model, layers, plans::bucket_cap_mb(config.job));
  held.emplace(replica.stage, std::move(replica));
}

void RankState::open_inputs(const HeldReplica& replica) {
  const plans::Plan& plan = config.plan;
  auto open = [&](plans::InputKind kind, uint32_t tensors_max) {
    net::TensorInbox::StreamSpec stream;
    stream.generation = plan.generation;
    stream.receiver = replica.parts.id.value;
    stream.kind = to_schema(kind);
    stream.row_begin = static_cast<uint32_t>(replica.rows.begin);
    stream.row_count = static_cast<uint32_t>(replica.rows.count);
    stream.row_floats = static_cast<uint32_t>(row_floats);
    stream.tensors_max = tensors_max;
    stream.on_tensor = [to = Rank(self)](const net::TensorKey& key, net::TensorHandle tensor) {
      caf::anon_send(to, InputArrived{key, std::move(tensor)});
    };
    config.plane->inbox().open(std::move(stream));
  };
  // A neighbour never waits for us to take an input of its step: one for every micro-batch, and one
  // that is already of the next step.
  const auto step_tensors = static_cast<uint32_t>(plan.microbatch_count) + 1;
  if (replica.stage > 0 && !config.links.contains(replica.stage - 1)) {
    open(plans::InputKind::kActivation, step_tensors);
  }
  if (!replica.routes_forward.empty() && !config.links.contains(replica.stage)) {
    open(plans::InputKind::kGradient, step_tensors);
  }
  if (replica.stage > 0) open(plans::InputKind::kValidation, kValidationTensorsMax);
}

uint64_t RankState::now_us() const { return to_us(self->clock().now()); }

void RankState::on_control(const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (retires) return;
  const auto* group = std::get_if<net::GroupStart>(&body);
  const auto* commit = std::get_if<net::Commit>(&body);
  if (group || commit) reach(config.fail_point, FailPlace::kAfterReady);
  if (const auto* start = std::get_if<net::Start>(&body)) {
    plans::CommitOrder left;
    left.step = config.first_step - 1;
    left.validate = start->validate;
    left.checkpoint = start->checkpoint;
    left.last = start->last;
    left.snapshot = start->snapshot;
    const uint64_t dropped = program->dropped();
    const plans::RankCommands commands = program->on_start(left);
    if (program->dropped() != dropped) return;
    step_start_us = now_us();
    if (!left.last) begin_serving();
    apply(commands);
  } else if (group) {
    apply(program->on_group_start(group->group, group->step));
  } else if (on_column_control(body)) {
    return;
  } else if (commit) {
    const plans::CommitOrder& order = commit->order;
    const uint64_t dropped = program->dropped();
    const plans::RankCommands commands = program->on_commit(order);
    if (program->dropped() != dropped) return;
    if (program->is_column()) {  // Its own commits were those of its steps.
      if (!order.last) begin_serving();
      return apply(commands);
    }
    for (const auto& [stage, replica] : held) {
      record(stage, "commit", 4, replica.ready_us, now_us(), -1);
    }
    if (profiles) send_timings(order.step);
    profiles = commit->profile;
    step_start_us = now_us();
    apply(commands);
  }
}

void RankState::on_input(const InputArrived& arrived) {
  if (retires) return;
  const int32_t stage = plans::stage_of(config.plan, plans::ReplicaId{arrived.key.receiver});
  const plans::InputKey key{from_schema(arrived.key.kind), arrived.key.step, stage,
                            static_cast<int32_t>(arrived.key.microbatch)};
  const uint64_t dropped = program->dropped();
  const plans::RankCommands commands = program->on_input(key);
  if (program->dropped() != dropped) return;
  inputs[key] = arrived.tensor;
  if (profiles && key.kind != plans::InputKind::kValidation) {
    const char* kind = key.kind == plans::InputKind::kActivation ? "RECV_F" : "RECV_B";
    record(stage, absl::StrCat(stage, kind, key.microbatch), 2, now_us(), now_us() + 1,
           key.microbatch);
  }
  apply(commands);
}

void RankState::on_work_done(const WorkDone& done) {
  if (done.token == kLastWork) {
    device_is_drained = true;
    return try_retire();
  }
  if (!done.status.ok()) return fail(with_estimates(done.status));
  if (done.token >= kColumnWork) return on_column_work(done.token - kColumnWork);
  if (done.token == kSaveWork) return;
  if (done.token == kSnapshotWork) {
    const uint64_t end_us = to_us(done.ended);
    for (auto& [stage, replica] : held) replica.snapshot_us = end_us - device_free_us;
    device_free_us = end_us;
    return;
  }
  const Running ended = std::move(running.front());
  running.pop_front();
  const uint64_t end_us = to_us(done.ended);
  finish(ended, std::max(ended.submitted_us, device_free_us), end_us);
  device_free_us = end_us;
  activity_since_us = end_us;
  if (const auto* run = std::get_if<plans::RunAction>(&ended.command); run && !retires) {
    pass_on(*run);
  }
  apply(program->on_work_done());
}

void RankState::fail(const absl::Status& why) {
  if (!retires) self->send(config.listener, WorkerFault{why});
}

/// What runs on the device or in a group still uses the models: both are waited for.
void RankState::on_retire(const RetireRank& order) {
  if (retires) return;
  // The step may have been committed without us, in a generation that we have no part in.
  const bool is_ours = order.committed_generation == config.plan.generation;
  if (is_ours && program->waits_for_commit() && program->step() + 1 == order.committed_steps) {
    plans::CommitOrder commit;
    commit.step = program->step();
    commit.gradient_norm = order.gradient_norm;
    commit.last = true;
    apply(program->on_commit(commit));
  }
  retires = true;
  submit_aside(kLastWork, {});
}

void RankState::try_retire() {
  if (!device_is_drained || reductions > 0) return;
  RankRetired retired;
  retired.generation = config.plan.generation;
  retired.steps_done = program->steps_done();
  retired.has_common_state = program->has_common_state();
  retired.replicas = std::move(config.replicas);
  self->send(config.listener, std::move(retired));
  outputs.clear();
  transfers.clear();
  arriving.clear();
  held.clear();
}

void RankState::tell_activity() {
  if (retires) return;
  RankActivity activity;
  activity.action = program->activity();
  activity.works = program->is_working();
  const uint64_t now = now_us();
  activity.action_us = now > activity_since_us ? now - activity_since_us : 0;
  self->send(config.listener, std::move(activity));
}

void RankState::apply(const plans::RankCommands& commands) {
  if (retires) return;
  if (!commands.empty()) activity_since_us = std::max(activity_since_us, now_us());
  for (const plans::RankCommand& command : commands) {
    std::visit([this](const auto& each) { carry_out(each); }, command);
  }
  if (program->computes()) expect_operations(program->step());
}

void RankState::carry_out(const plans::RunAction& command) {
  HeldReplica& replica = held.at(command.action.stage);
  const bool is_forward = command.action.type == plans::ActionType::kForward;
  const bool sends =
      command.action.type != plans::ActionType::kBackwardWeight && command.is_last_part();
  const auto kind =
      is_forward ? net::schema::TensorKind::ACTIVATION : net::schema::TensorKind::GRADIENT;
  Outgoing output =
      sends ? outgoing(replica, kind, command.step, command.action.microbatch) : Outgoing();
  if (output.memory != nullptr && output.parts.empty()) {
    outputs[{replica.stage, command.action.type, command.action.microbatch}] = output.memory;
  }
  gpu::Work work = is_forward ? forward_work(command, replica, output.memory)
                              : backward_work(command, replica, output.memory);
  submit(command, std::move(work), std::move(output));
}

void RankState::carry_out(const plans::RunNorm& command) {
  const HeldReplica& replica = held.at(command.stage);
  gpu::Work work;
  work.run = [model = replica.parts.model, norm = replica.norm_squared](gpu::Ops& ops) {
    return model->gradient_norm_squared(ops, norm.get());
  };
  submit(command, std::move(work));
}

void RankState::carry_out(const plans::RunUpdate& command) {
  submit(command, update_work(command));
}

void RankState::carry_out(const plans::RunValidation& command) {
  HeldReplica& replica = held.at(command.stage);
  Outgoing output =
      outgoing(replica, net::schema::TensorKind::VALIDATION, command.step, command.microbatch);
  gpu::Work work = validation_work(command, replica, output.memory);
  submit(command, std::move(work), std::move(output));
}

/// Work that is not the program's.
void RankState::submit_aside(uint64_t token, gpu::Work work) {
  config.device->submit(std::move(work),
                        [to = Rank(self), token, &clock = self->clock()](absl::Status status) {
                          caf::anon_send(to, WorkDone{token, std::move(status), clock.now()});
                        });
}

void RankState::submit(const plans::RankCommand& command, gpu::Work work, Outgoing output) {
  running.push_back({command, now_us()});
  work.piece = piece_of(command);
  work.name = name_of(command);
  work.device_count = worker_number_max;
  auto shared = std::make_shared<Outgoing>(std::move(output));
  // The clock of the actors, which any thread may ask, outlives the device as their system does.
  config.device->submit(std::move(work),
                        [to = Rank(self), shared, &clock = self->clock()](absl::Status status) {
                          const auto ended = clock.now();
                          if (status.ok()) shared->send(to_us(ended));
                          caf::anon_send(to, WorkDone{kProgramWork, std::move(status), ended});
                        });
}

}  // namespace skein::actors
