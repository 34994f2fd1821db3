#include "actors/replica.hpp"

#include <chrono>
#include <utility>
#include <variant>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/learning_rate.hpp"

namespace skein::actors {
namespace {

/// Tokens by which a replica tells its pieces of work apart.
constexpr uint64_t kProgramWork = 0;
constexpr uint64_t kSnapshotWork = 1;
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
  }
  return plans::InputKind::kActivation;
}

}  // namespace

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config) {
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const net::ControlMessage& message) { self->state.on_control(message); },
      [self](const InputArrived& arrived) { self->state.on_input(arrived); },
      [self](const WorkDone& done) { self->state.on_work_done(done); },
      [self](const ReductionDone& done) { self->state.on_reduction_done(done); },
      [self](const ShardWritten& written) { self->state.on_shard_written(written); },
      [self](const ClockOffset& offset) { self->state.clock_offset_us = offset.offset_us; },
      [self](const TensorSent& sent) {
        self->state.record(sent.slice, 1, sent.start_us, self->state.now_us(), sent.microbatch);
      },
  };
}

void ReplicaState::start(ReplicaConfig new_config) {
  config = std::move(new_config);
  const plans::Plan& plan = config.plan;
  const plans::ReplicaId id = config.parts.id;
  stage = plans::stage_of(plan, id);
  rows = plans::replica_of(plan, id).rows;
  row_floats = config.job.training.seq_len * config.job.model.channels;
  routes_forward = plans::routes_from(plan, id, +1);
  routes_backward = plans::routes_from(plan, id, -1);
  staging = gpu::StagingPool::create(rows.count * row_floats);

  const auto stage_count = static_cast<int32_t>(plan.stages.size());
  plans::ReplicaProgram::Options options;
  options.actions = plans::schedule_actions(plan.schedule, stage, stage_count,
                                            static_cast<int32_t>(plan.microbatch_count));
  options.is_first = stage == 0;
  options.is_last = stage + 1 == stage_count;
  options.leads = plan.stages[static_cast<size_t>(stage)].replicas.front().id == id;
  for (const auto& [group, members] : config.parts.groups) options.groups.push_back(group);
  options.first_step = config.first_step;
  options.validation_batches = static_cast<int32_t>(config.job.validation.batches);
  const bool is_first = options.is_first;
  const bool is_last = options.is_last;
  program.emplace(std::move(options));

  auto open = [&](plans::InputKind kind, uint32_t tensors_max) {
    net::TensorInbox::StreamSpec stream;
    stream.generation = plan.generation;
    stream.receiver = id.value;
    stream.kind = to_schema(kind);
    stream.row_begin = static_cast<uint32_t>(rows.begin);
    stream.row_count = static_cast<uint32_t>(rows.count);
    stream.row_floats = static_cast<uint32_t>(row_floats);
    stream.tensors_max = tensors_max;
    stream.on_tensor = [to = Replica(self)](const net::TensorKey& key, net::TensorHandle tensor) {
      caf::anon_send(to, InputArrived{key, std::move(tensor)});
    };
    config.plane->inbox().open(std::move(stream));
  };
  // A neighbour never waits for us to take an input of its step: one for every micro-batch, and one
  // that is already of the next step.
  const auto step_tensors = static_cast<uint32_t>(plan.microbatch_count) + 1;
  if (!is_first) open(plans::InputKind::kActivation, step_tensors);
  if (!is_last) open(plans::InputKind::kGradient, step_tensors);
  if (!is_first) open(plans::InputKind::kValidation, kValidationTensorsMax);
}

uint64_t ReplicaState::now_us() const {
  const auto now = self->clock().now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

void ReplicaState::on_control(const net::ControlMessage& message) {
  const auto body = (*message).getBody();
  if (body.isStart()) {
    step_start_us = now_us();
    apply(program->on_start());
  } else if (body.isGroupStart()) {
    const auto start = body.getGroupStart();
    apply(program->on_group_start(plans::GroupId{start.getGroup()}, start.getStep()));
  } else if (body.isCommit()) {
    const auto commit = body.getCommit();
    const plans::CommitOrder order{commit.getStep(), commit.getGradientNorm(), commit.getValidate(),
                                   commit.getCheckpoint(), commit.getLast()};
    const plans::ReplicaCommands commands = program->on_commit(order);
    if (commands.empty()) return;
    record("commit", 4, ready_us, now_us(), -1);
    if (profiles) send_timings(order.step);
    profiles = commit.getProfile();
    apply(commands);
  }
}

void ReplicaState::on_input(const InputArrived& arrived) {
  const plans::InputKey key{from_schema(arrived.key.kind), arrived.key.step,
                            static_cast<int32_t>(arrived.key.microbatch)};
  inputs[key] = arrived.tensor;
  if (profiles && key.kind != plans::InputKind::kValidation) {
    const char* kind = key.kind == plans::InputKind::kActivation ? "RECV_F" : "RECV_B";
    record(absl::StrCat(stage, kind, key.microbatch), 2, now_us(), now_us() + 1, key.microbatch);
  }
  apply(program->on_input(key));
}

void ReplicaState::on_work_done(const WorkDone& done) {
  if (!done.status.ok()) return fail(done.status);
  if (done.token == kSnapshotWork) return;
  // A validation pass is no part of a step's time.
  if (!std::holds_alternative<plans::RunValidation>(current)) busy_us += now_us() - work_start_us;
  if (const auto* run = std::get_if<plans::RunAction>(&current)) {
    finish_action(*run);
  } else if (const auto* validation = std::get_if<plans::RunValidation>(&current)) {
    send_output(net::schema::TensorKind::VALIDATION, validation->step, validation->microbatch);
  } else if (std::holds_alternative<plans::RunUpdate>(current)) {
    record("update", 0, work_start_us, now_us(), -1);
  }
  apply(program->on_work_done());
}

void ReplicaState::on_reduction_done(const ReductionDone& done) {
  if (!done.status.ok()) return fail(done.status);
  const plans::ReplicaCommands commands = program->on_group_reduced(done.group, done.step);
  if (!commands.empty()) record("reduce", 3, reduce_start_us, now_us(), -1);
  apply(commands);
}

void ReplicaState::fail(const absl::Status& why) { self->send(config.worker, WorkerFault{why}); }

void ReplicaState::apply(const plans::ReplicaCommands& commands) {
  for (const plans::ReplicaCommand& command : commands) {
    std::visit([this](const auto& each) { carry_out(each); }, command);
  }
}

void ReplicaState::carry_out(const plans::RunAction& command) {
  if (command.action.type == plans::ActionType::kForward) {
    stash_peak = std::max(stash_peak, ++stashes);
    submit(command, forward_work(command));
  } else {
    submit(command, backward_work(command));
  }
}

void ReplicaState::carry_out(const plans::RunNorm& command) {
  gpu::Work work;
  work.run = [model = config.parts.model, norm = norm_squared](gpu::Ops& ops) {
    return model->gradient_norm_squared(ops, norm.get());
  };
  submit(command, std::move(work));
}

void ReplicaState::carry_out(const plans::RunUpdate& command) {
  submit(command, update_work(command));
}

void ReplicaState::carry_out(const plans::RunValidation& command) {
  submit(command, validation_work(command));
}

void ReplicaState::carry_out(const plans::RunReduction& command) {
  if (reduce_start_us < ready_us) reduce_start_us = now_us();
  const plans::ReductionGroup& group = config.plan.groups[command.group.value];
  const std::span<float> values = group.scope == plans::GroupScope::kTied
                                      ? config.parts.model->tied_gradients()
                                      : config.parts.model->stage_gradients();
  self->send(config.groups.at(command.group), ReductionRequest{command.step, values},
             ReductionListener(self));
}

void ReplicaState::carry_out(const plans::SaveState& command) {
  // The copy is work of the device: it runs before the next step's first action changes anything.
  auto copy = std::make_shared<ShardRequest>();
  copy->steps_done = command.steps_done;
  copy->stage = stage;
  copy->parameters = config.parts.model->parameters();
  gpu::Work work;
  work.run = [copy, model = config.parts.model, shards = config.shards,
              listener = ShardListener(self)](gpu::Ops&) -> absl::Status {
    absl::Status status = snapshot(*model, *copy);
    if (status.ok()) caf::anon_send(shards, std::move(*copy), listener);
    return status;
  };
  self->send(config.device, DeviceWork{kSnapshotWork, std::move(work)}, WorkListener(self));
}

void ReplicaState::submit(const plans::ReplicaCommand& command, gpu::Work work) {
  current = command;
  work_start_us = now_us();
  self->send(config.device, DeviceWork{kProgramWork, std::move(work)}, WorkListener(self));
}

}  // namespace skein::actors
