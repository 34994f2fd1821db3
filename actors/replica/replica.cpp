#include "actors/replica/replica.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"
#include "actors/replica/model_work.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

/// What is left to do of the step before the first one.
plans::CommitOrder order_of(const net::Start& start) {
  plans::CommitOrder left;
  left.validate = start.validate;
  left.checkpoint = start.checkpoint;
  left.last = start.last;
  left.snapshot = start.snapshot;
  return left;
}

}  // namespace

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const net::Envelope& message) {
        if (self->state.retires) return;
        std::visit([self](const auto& body) { self->state.on_message(body); }, message.body);
      },
      [self](const InputArrived& arrived) { self->state.on_input(arrived); },
      [self](const WorkDone& done) { self->state.on_work_done(done); },
      [self](const ReductionDone& done) { self->state.on_reduction_done(done); },
      [self](const TransferDone& done) { self->state.on_transfer_done(done); },
      [self](const ShardWritten& written) { self->state.on_shard_written(written); },
      [self](const ClockOffset& offset) {
        self->state.parts.trace.set_clock_offset(offset.offset_us);
      },
      [self](const RetireReplicas& order) { self->state.on_retire(order); },
      [self](HeartbeatAtom) { self->state.tell_activity(); },
      [self](const ChunkArrived& arrived) { self->state.on_chunk(arrived); },
      [self](const TensorSent& sent) {
        self->state.parts.trace.record(sent.stage, sent.slice, StepTrace::kSend, sent.start_us,
                                       self->state.now_us(), sent.microbatch, sent.step);
      },
  };
}

void ReplicaState::start(ReplicaConfig new_config) {
  config = std::move(new_config);
  SKEIN_CHECK(!config.replicas.empty()) << "there is at least one replica";
  if (config.share) config.share->begin_passes();
  const plans::PlanPart& plan = config.plan;
  plans::ProgramOptions options;
  options.first_step = config.first_step;
  options.validation_batches = static_cast<int32_t>(
      (plans::validation_samples(config.job) + plan.microbatch_rows - 1) / plan.microbatch_rows);
  options.samples_per_step = static_cast<uint64_t>(config.job.training.global_batch_size);
  options.microbatch_rows = plan.microbatch_rows;
  options.stage_count = plan.stage_count;
  const plans::ModeEntry& mode = plans::find_mode(plans::modes_or_own(config.modes), plan.mode);
  for (const PreparedReplica& each : config.replicas) {
    StageReplica replica = make_stage_replica(config.job, plan, each, mode.reduces_gradients);
    options.stages.push_back(stage_role(plan, replica));
    parts.replicas.emplace(replica.stage, std::move(replica));
  }
  options.actions = plan.actions;
  options.passes_in_flight = mode.passes_of(config.job);
  parts.trace.set_overlaps(options.passes_in_flight > 1);
  program = mode.make_program(std::move(options));
  open(parts, config, make_hooks(), *program);
  commands = std::make_unique<CommandRunner>(
      CommandRunner::Options{
          [this] { return now_us(); }, [this](const net::ControlBody& body) { report(body); },
          [this](const absl::Status& why) { fail(why); },
          [to = Replica(self)](const TensorSent& sent) { caf::anon_send(to, sent); }},
      config, *program, parts);
}

ReplicaHooks ReplicaState::make_hooks() {
  ReplicaHooks hooks;
  hooks.now_us = [this] { return now_us(); };
  hooks.submit = [this](uint64_t token, gpu::Work work, Outgoing output) {
    work.given = self->clock().now();
    auto piece = std::make_shared<DevicePiece>();
    *piece = {token, std::move(work), std::move(output), WorkListener(self)};
    self->send(config.work, DeviceRequest{std::move(piece)});
  };
  hooks.on_tensor = [to = Replica(self)](const net::TensorKey& key, net::TensorHandle tensor) {
    caf::anon_send(to, InputArrived{key, std::move(tensor)});
  };
  hooks.on_chunk = [to = Replica(self)](const net::TensorKey& key, net::TensorHandle chunk) {
    caf::anon_send(to, ChunkArrived{key, std::move(chunk)});
  };
  hooks.reduce = [this](plans::GroupId group, const ReductionRequest& request) {
    self->send(config.groups.at(group), request, ReductionListener(self));
    reach(config.fail_point, FailPlace::kDuringReduction);
  };
  hooks.transfer = [this](int32_t front, const TransferRequest& request) {
    self->send(config.links.at(front), request, TransferListener(self));
  };
  hooks.fail = [this](const absl::Status& why) { fail(why); };
  hooks.on_average_ended = [this](const StageAverages::Ended& ended) { on_average_ended(ended); };
  hooks.shard_listener = ShardListener(self);
  return hooks;
}

uint64_t ReplicaState::now_us() const { return to_us(self->clock().now()); }

void ReplicaState::on_message(const net::Start& start) {
  const plans::ProgramOutcome outcome = program->on_start(order_of(start));
  if (outcome.is_accepted()) {
    parts.trace.begin_step(now_us());
    take_turn(start.turn, !start.last && !start.validate);
  }
  apply(outcome);
}

void ReplicaState::on_message(const plans::CommitOrder& order) {
  reach(config.fail_point, FailPlace::kAfterReady);
  const plans::ProgramOutcome outcome = program->on_commit(order);
  if (outcome.is_accepted()) take_turn(order.turn, !order.last && !order.validate);
  apply(outcome);
}

void ReplicaState::on_message(const net::Claim& claim) {
  const bool is_in_step = program->is_in_step();
  const plans::ProgramOutcome outcome =
      program->on_claim({claim.step, claim.samples, claim.profile});
  if (outcome.is_accepted() && claim.profile) parts.trace.set_profiles(true);
  if (!is_in_step && !outcome.decisions().empty()) parts.trace.begin_step(now_us());
  if (outcome.is_accepted()) take_turn(claim.turn, true);
  apply(outcome);
}

void ReplicaState::on_message(const plans::UpdateOrder& order) {
  const plans::ProgramOutcome outcome = program->on_update(order);
  if (outcome.is_accepted()) take_turn(order.turn, order.next.has_value());
  apply(outcome);
}

/// On a device that other jobs use as well: whoever has no next pass for now takes no turns.
void ReplicaState::take_turn(uint64_t position, bool has_pass) const {
  if (!config.share) return;
  if (!has_pass) return config.share->leave();
  if (position > 0) config.share->enter(position);
}

void ReplicaState::on_message(const net::Average& average) {
  StageAverages* own = parts.averages_of(average.replica);
  if (!own) return drops.add(plans::DropReason::kUnknown);
  const auto taken = own->on_order(average);
  if (!drops.note(taken) || !taken.decisions()) return;
  const plans::ProgramOutcome outcome = program->on_average(*taken.decisions());
  if (outcome.is_dropped()) own->withdraw(average.number);
  apply(outcome);
}

void ReplicaState::on_message(const net::AbortGroup& abort) {
  StageAverages* own = parts.averages_of(abort.replica);
  if (!own) return drops.add(plans::DropReason::kUnknown);
  own->abort(abort.number);
}

void ReplicaState::on_message(const plans::TokenOrder& order) {
  const StageReplica* own = find_replica(parts.replicas, order.replica);
  if (!own) return drops.add(plans::DropReason::kUnknown);
  apply(program->on_token(own->stage, order));
}

void ReplicaState::on_input(const InputArrived& arrived) {
  if (retires) return;
  const plans::InputKey key = parts.traffic->input_key(arrived.key);
  const plans::ProgramOutcome outcome = program->on_input(key);
  if (outcome.is_accepted()) {
    parts.traffic->keep(key, arrived.tensor);
    const bool is_activation = key.kind == plans::InputKind::kActivation;
    if (is_activation || key.kind == plans::InputKind::kGradient) {
      const char* kind = is_activation ? "RECV_F" : "RECV_B";
      parts.trace.record(key.stage, slice_name(key.stage, kind, key.microbatch),
                         StepTrace::kReceive, now_us(), now_us() + 1, key.microbatch, key.step);
    }
  }
  apply(outcome);
}

void ReplicaState::on_work_done(const WorkDone& done) {
  if (done.token == DeviceWork::kLast) {
    device_is_drained = true;
    return try_retire();
  }
  if (!done.status.ok()) return fail(done.status);
  if (done.token >= DeviceWork::kAverage) return on_average_work(done.token - DeviceWork::kAverage);
  if (done.token == DeviceWork::kSave) return;
  const uint64_t end_us = to_us(done.ended);
  std::optional<uint64_t> begun_us;
  if (done.begun) begun_us = to_us(*done.begun);
  if (done.token == DeviceWork::kSnapshot)
    return parts.trace.on_snapshot(parts.device->end_aside(end_us, begun_us));
  const DeviceWork::Done ended = parts.device->end(end_us, begun_us);
  parts.trace.on_work(ended.command, ended.start_us, ended.end_us, ended.wait_us);
  activity_since_us = end_us;
  const auto* update = std::get_if<plans::RunUpdate>(&ended.command);
  if (update && update->by_stage && !retires) commands->end_step(*update);
  const auto* run = std::get_if<plans::RunAction>(&ended.command);
  if (run && !retires) parts.links->pass_on(*run);
  apply(program->on_work_done());
}

void ReplicaState::on_average_work(uint64_t number) {
  if (retires) return;
  const auto stage = static_cast<int32_t>(number / StageAverages::kWorks);
  parts.averages.at(stage)->on_work(
      static_cast<StageAverages::Work>(number % StageAverages::kWorks));
}

void ReplicaState::on_average_ended(const StageAverages::Ended& ended) {
  if (ended.start_us) {
    parts.trace.record(ended.stage, "average", StepTrace::kGradients, *ended.start_us, now_us());
  }
  report(net::Averaged{parts.replicas.at(ended.stage).parts.id, ended.number, ended.ok});
  if (!ended.is_nonblocking) apply(program->on_averaged(ended.stage, ended.number, ended.ok));
}

void ReplicaState::on_shard_written(const ShardWritten& written) {
  if (written.is_sent) return report(net::ShardSent{written.stage, written.steps_done});
  net::ShardSaved saved;
  saved.stage = written.stage;
  saved.step = written.steps_done;
  if (written.files.ok()) saved.files = *written.files;
  saved.error = std::string(written.files.status().message());
  report(std::move(saved));
}

void ReplicaState::report(const net::ControlBody& body) const {
  config.link->send(net::encode(config.head, body));
}

void ReplicaState::on_chunk(const ChunkArrived& arrived) {
  if (retires) return;
  const StageReplica* replica =
      find_replica(parts.replicas, plans::ReplicaId{arrived.key.receiver});
  if (replica) parts.averages.at(replica->stage)->on_chunk(arrived.key, arrived.chunk);
}

void ReplicaState::on_reduction_done(const ReductionDone& done) {
  const std::optional<uint64_t> start_us = parts.reductions->on_end(done);
  if (!start_us) return drops.add(plans::DropReason::kUnexpected);
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  parts.reductions->pass_turn(done);
  const plans::ProgramOutcome outcome =
      program->on_group_reduced(done.group, done.step, done.bucket);
  if (outcome.is_accepted()) {
    parts.trace.record(member_of(parts.replicas, done.group).stage, "reduce", StepTrace::kGradients,
                       *start_us, now_us());
  }
  apply(outcome);
}

void ReplicaState::on_transfer_done(const TransferDone& done) {
  if (!parts.links->on_end(done.key)) return drops.add(plans::DropReason::kUnexpected);
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  const LinkTransfers::Ended ended = parts.links->finish(done.key);
  const LinkTransfers::Transfer& transfer = ended.transfer;
  if (transfer.is_sent) {
    const char* kind = transfer.key.kind == Kind::ACTIVATION ? "SEND_F" : "SEND_B";
    parts.trace.record(transfer.stage, slice_name(transfer.stage, kind, transfer.id.microbatch),
                       StepTrace::kSend, transfer.start_us, now_us(), transfer.id.microbatch);
  }
  if (ended.input) on_input({transfer.key, ended.input});
}

/// If memory was missing, says what the plan counts on for the stages that are here.
void ReplicaState::fail(const absl::Status& why) {
  if (retires) return;
  absl::Status told = why;
  for (const auto& [stage, replica] : parts.replicas) {
    const gpu::StageModel& model = *replica.parts.model;
    told = gpu::with_estimate(told, replica.parts.options, model.device_info());
  }
  self->send(config.listener, WorkerFault{told, {}});
}

/// What runs on the device or in a group still uses the models: both are waited for.
void ReplicaState::on_retire(const RetireReplicas& order) {
  if (retires) return;
  // The step may have been committed without us, in a generation that we have no part in.
  const bool is_ours = order.committed_generation == config.plan.generation;
  const std::optional<uint64_t> awaited = program->awaited_commit();
  if (is_ours && awaited && *awaited + 1 == order.committed_steps) {
    plans::CommitOrder commit;
    commit.step = *awaited;
    commit.gradient_norm = order.gradient_norm;
    commit.last = true;
    apply(program->on_commit(commit));
  }
  retires = true;
  if (config.share) config.share->end_passes();
  parts.device->submit_aside(DeviceWork::kLast, {});
}

void ReplicaState::try_retire() {
  if (!device_is_drained || !parts.reductions->is_idle() || !parts.links->is_idle()) return;
  ReplicasRetired retired;
  retired.generation = config.plan.generation;
  retired.steps_done = program->steps_done();
  retired.has_global_state = program->has_global_state();
  config.link_memory.clear();
  retired.replicas = std::move(config.replicas);
  self->send(config.listener, std::move(retired));
  parts.clear();
}

void ReplicaState::tell_activity() {
  if (retires) return;
  ReplicaActivity activity;
  activity.action = program->activity();
  // What waits for a device that is with another job is neither work nor slowness.
  const bool waits = config.share && config.share->is_waiting();
  activity.works = program->is_working() && !waits;
  activity.awaits_device = waits;
  if (waits) activity.action = absl::StrCat("another job, before ", activity.action);
  const uint64_t now = now_us();
  activity.action_us = now > activity_since_us ? now - activity_since_us : 0;
  activity.dropped = std::exchange(drops, {});
  self->send(config.listener, std::move(activity));
}

void ReplicaState::apply(const plans::ProgramOutcome& outcome) {
  if (drops.note(outcome)) apply(outcome.decisions());
}

void ReplicaState::apply(const plans::ProgramCommands& all) {
  if (retires) return;
  if (!all.empty()) activity_since_us = std::max(activity_since_us, now_us());
  for (const plans::ProgramCommand& each : all) commands->run(each);
  if (const std::optional<uint64_t> step = program->computed_step())
    commands->expect_operations(*step);
  if (config.checks_invariants) {
    program->check_invariants();
    for (const auto& [stage, each] : parts.averages) each->check_invariants();
  }
}

}  // namespace skein::actors
