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
#include "plans/base/debug_checks.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/worker/make_program.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

/// A tensor that was sent or received, in the trace: "0SEND_F3".
std::string slice_name(int32_t stage, const std::string& kind, int32_t microbatch) {
  return absl::StrCat(stage, kind, microbatch);
}

plans::CommitOrder order_of(net::schema::Commit::Reader commit) {
  plans::CommitOrder order;
  order.step = commit.getStep();
  order.gradient_norm = commit.getGradientNorm();
  order.validate = commit.getValidate();
  order.checkpoint = commit.getCheckpoint();
  order.last = commit.getLast();
  order.snapshot = commit.getSnapshot();
  order.snapshot_floor = commit.getSnapshotFloor();
  order.profile = commit.getProfile();
  return order;
}

plans::CommitOrder order_of(net::schema::Start::Reader start) {
  plans::CommitOrder left;
  left.validate = start.getValidate();
  left.checkpoint = start.getCheckpoint();
  left.last = start.getLast();
  left.snapshot = start.getSnapshot();
  return left;
}

plans::UpdateOrder order_of(net::schema::ColumnCommit::Reader commit) {
  plans::UpdateOrder order;
  order.step = commit.getStep();
  order.gradient_norm = commit.getGradientNorm();
  if (commit.getNextCount() > 0) order.next = {commit.getNextSample(), commit.getNextCount()};
  order.profile = commit.getProfile();
  return order;
}

GroupOrder order_of(net::schema::Combine::Reader combine) {
  GroupOrder order;
  order.number = combine.getNumber();
  for (auto member : combine.getMembers()) {
    order.members.push_back({plans::ReplicaId{member.getReplica()}, 0, member.getWeight()});
  }
  order.is_passive = combine.getPassive();
  order.is_global = combine.getCommon();
  order.has_server = combine.getServer();
  order.is_closing = combine.getClosing();
  order.steps_done = combine.getStepsDone();
  order.staleness = combine.getStaleness();
  return order;
}

}  // namespace

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const net::ControlMessage& message) { self->state.on_control(message); },
      [self](const InputArrived& arrived) { self->state.on_input(arrived); },
      [self](const WorkDone& done) { self->state.on_work_done(done); },
      [self](const ReductionDone& done) { self->state.on_reduction_done(done); },
      [self](const TransferDone& done) { self->state.on_transfer_done(done); },
      [self](const ShardWritten& written) { self->state.reports->shard_saved(written); },
      [self](const ClockOffset& offset) { self->state.trace.set_clock_offset(offset.offset_us); },
      [self](const RetireReplicas& order) { self->state.on_retire(order); },
      [self](HeartbeatAtom) { self->state.tell_activity(); },
      [self](const ChunkArrived& arrived) { self->state.on_chunk(arrived); },
      [self](const TensorSent& sent) {
        self->state.trace.record(sent.stage, sent.slice, StepTrace::kSend, sent.start_us,
                                 self->state.now_us(), sent.microbatch);
      },
  };
}

void ReplicaState::start(ReplicaConfig new_config) {
  config = std::move(new_config);
  SKEIN_CHECK(!config.replicas.empty()) << "there is at least one replica";
  const plans::Plan& plan = config.plan;
  plans::ProgramOptions options;
  options.first_step = config.first_step;
  options.validation_batches = static_cast<int32_t>(config.job.validation.batches);
  options.samples_per_step = static_cast<uint64_t>(config.job.training.global_batch_size);
  options.microbatch_rows = plan.microbatch_rows;
  for (const PreparedReplica& parts : config.replicas) {
    StageReplica replica = make_stage_replica(config.job, plan, parts);
    options.stages.push_back(stage_role(plan, replica));
    trace.add_stage(replica.stage);
    replicas.emplace(replica.stage, std::move(replica));
  }
  const plans::StagePlan& first = plan.stages[static_cast<size_t>(replicas.begin()->first)];
  options.actions = plan.actions[static_cast<size_t>(first.rank)];
  program = plans::make_program(plan, std::move(options));
  reports = std::make_unique<Reports>(config.link, config.head);
  const int64_t row_floats = config.job.training.seq_len * config.job.model.channels;
  std::set<int32_t> linked;
  for (const auto& [front, link] : config.links) linked.insert(front);
  auto now = [this] { return now_us(); };
  // The clock of the actors, which any thread may ask, outlives the device as their system does.
  auto submit = [to = Replica(self), device = config.device, &clock = self->clock()](
                    uint64_t token, gpu::Work work, Outgoing output) {
    auto shared = std::make_shared<Outgoing>(std::move(output));
    device->submit(std::move(work), [to, token, shared, &clock](absl::Status status) {
      const auto ended = clock.now();
      if (status.ok()) shared->send(to_us(ended));
      caf::anon_send(to, WorkDone{token, std::move(status), ended});
    });
  };
  const plans::WorkerId worker = plans::replica_of(plan, config.replicas.front().id).worker;
  device = std::make_unique<DeviceWork>(DeviceWork::Options{plan, worker, submit, now});
  traffic = std::make_unique<TensorTraffic>(
      TensorTraffic::Options{plan, row_floats, linked, config.plane, config.addresses,
                             [to = Replica(self)](const net::TensorKey& key, auto tensor) {
                               caf::anon_send(to, InputArrived{key, std::move(tensor)});
                             }},
      replicas);
  const bool shares_device = !config.device_groups.empty() || !config.links.empty();
  operations = std::make_unique<DeviceOperations>(
      shares_device ? plans::communication_places(plan) : plans::CommunicationPlaces(),
      [this](const plans::CollectiveKey& key) { begin_operation(key); });
  reductions = std::make_unique<Reductions>(
      Reductions::Options{plan, config.device_groups,
                          [this](plans::GroupId group, const ReductionRequest& request) {
                            self->send(config.groups.at(group), request, ReductionListener(self));
                            reach(config.fail_point, FailPlace::kDuringReduction);
                          },
                          now},
      replicas, *operations);
  links = std::make_unique<LinkTransfers>(
      LinkTransfers::Options{plan, row_floats, linked, config.device,
                             [this](int32_t front, const TransferRequest& request) {
                               self->send(config.links.at(front), request, TransferListener(self));
                             },
                             [this](const absl::Status& why) { fail(why); }, now},
      replicas, *operations);
  copies = std::make_unique<StateCopies>(
      StateCopies::Options{config.job.model, plan.generation, config.shards, config.keepers,
                           config.addresses, ShardListener(self),
                           SnapshotListener(config.listener)},
      replicas);
  if (!program->averages_weights()) return;
  for (const auto& [stage, replica] : replicas) open_averages(replica);
}

void ReplicaState::open_averages(const StageReplica& replica) {
  StageAverages::Options options;
  options.stage = replica.stage;
  options.model = replica.parts.model;
  options.streams.plane = config.plane;
  options.streams.generation = config.plan.generation;
  options.streams.self = replica.parts.id;
  for (const auto& each : config.plan.stages[static_cast<size_t>(replica.stage)].replicas) {
    options.stage_replicas.push_back(each.id);
    const auto address = config.addresses.find(each.worker);
    if (address != config.addresses.end()) options.streams.addresses[each.id] = address->second;
  }
  options.streams.on_chunk = [to = Replica(self)](const net::TensorKey& key, auto chunk) {
    caf::anon_send(to, ChunkArrived{key, std::move(chunk)});
  };
  options.has_server = plans::has_server(config.job);
  options.averages_moments = config.job.sync.average_moments;
  options.fail_point = config.fail_point;
  options.submit = [this, stage = replica.stage](StageAverages::Work what, gpu::Work work) {
    const uint64_t number =
        static_cast<uint64_t>(stage) * StageAverages::kWorks + static_cast<uint64_t>(what);
    device->submit_aside(DeviceWork::kAverage + number, std::move(work));
  };
  options.on_ended = [this](const StageAverages::Ended& ended) { on_average_ended(ended); };
  options.now_us = [this] { return now_us(); };
  averages[replica.stage] = std::make_unique<StageAverages>(std::move(options));
}

uint64_t ReplicaState::now_us() const { return to_us(self->clock().now()); }

void ReplicaState::on_control(const net::ControlMessage& message) {
  const auto body = (*message).getBody();
  if (retires) return;
  if (body.isStart()) {
    const plans::ProgramOutcome outcome = program->on_start(order_of(body.getStart()));
    if (outcome.is_accepted()) trace.begin_step(now_us());
    apply(outcome);
  } else if (body.isCommit()) {
    reach(config.fail_point, FailPlace::kAfterReady);
    apply(program->on_commit(order_of(body.getCommit())));
  } else if (body.isLease()) {
    const auto claim = body.getLease();
    const plans::ProgramOutcome outcome =
        program->on_claim({claim.getStep(), {claim.getFirstSample(), claim.getSampleCount()}});
    if (outcome.is_accepted()) trace.set_profiles(claim.getProfile());
    if (!outcome.decisions().empty()) trace.begin_step(now_us());
    apply(outcome);
  } else if (body.isColumnCommit()) {
    apply(program->on_update(order_of(body.getColumnCommit())));
  } else if (body.isCombine()) {
    on_group(order_of(body.getCombine()), plans::ReplicaId{body.getCombine().getReplica()});
  } else if (body.isDissolve()) {
    const auto abort = body.getDissolve();
    const StageReplica* replica = find_replica(replicas, plans::ReplicaId{abort.getReplica()});
    if (!replica || !averages.contains(replica->stage)) {
      return drops.add(plans::DropReason::kUnknown);
    }
    averages.at(replica->stage)->abort(abort.getNumber());
  } else {
    drops.add(plans::DropReason::kUnexpected);
  }
}

void ReplicaState::on_group(const GroupOrder& order, plans::ReplicaId id) {
  const StageReplica* replica = find_replica(replicas, id);
  if (!replica || !averages.contains(replica->stage)) {
    return drops.add(plans::DropReason::kUnknown);
  }
  StageAverages& own = *averages.at(replica->stage);
  const auto taken = own.on_order(order);
  if (!drops.note(taken) || !taken.decisions()) return;
  const plans::ProgramOutcome outcome = program->on_average(*taken.decisions());
  if (outcome.is_dropped()) own.withdraw(order.number);
  apply(outcome);
}

void ReplicaState::on_input(const InputArrived& arrived) {
  if (retires) return;
  const plans::InputKey key = traffic->input_key(arrived.key);
  const plans::ProgramOutcome outcome = program->on_input(key);
  if (outcome.is_accepted()) {
    traffic->keep(key, arrived.tensor);
    if (key.kind != plans::InputKind::kValidation) {
      const char* kind = key.kind == plans::InputKind::kActivation ? "RECV_F" : "RECV_B";
      trace.record(key.stage, slice_name(key.stage, kind, key.microbatch), StepTrace::kReceive,
                   now_us(), now_us() + 1, key.microbatch);
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
  if (done.token == DeviceWork::kSnapshot) return trace.on_snapshot(device->end_aside(end_us));
  const DeviceWork::Done ended = device->end(end_us);
  trace.on_work(ended.command, ended.start_us, ended.end_us);
  activity_since_us = end_us;
  const auto* run = std::get_if<plans::RunAction>(&ended.command);
  if (run && !retires) links->pass_on(*run);
  apply(program->on_work_done());
}

void ReplicaState::on_average_work(uint64_t number) {
  if (retires) return;
  const auto stage = static_cast<int32_t>(number / StageAverages::kWorks);
  averages.at(stage)->on_work(static_cast<StageAverages::Work>(number % StageAverages::kWorks));
}

void ReplicaState::on_average_ended(const StageAverages::Ended& ended) {
  if (ended.start_us) {
    trace.record(ended.stage, "average", StepTrace::kGradients, *ended.start_us, now_us());
  }
  reports->averaged(replicas.at(ended.stage).parts.id, ended.number, ended.ok);
  if (!ended.is_passive) apply(program->on_averaged(ended.stage, ended.number, ended.ok));
}

void ReplicaState::on_chunk(const ChunkArrived& arrived) {
  if (retires) return;
  const StageReplica* replica = find_replica(replicas, plans::ReplicaId{arrived.key.receiver});
  if (replica) averages.at(replica->stage)->on_chunk(arrived.key, arrived.chunk);
}

void ReplicaState::on_reduction_done(const ReductionDone& done) {
  const std::optional<uint64_t> start_us = reductions->on_end(done);
  if (!start_us) return drops.add(plans::DropReason::kUnexpected);
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  reductions->pass_turn(done);
  const plans::ProgramOutcome outcome =
      program->on_group_reduced(done.group, done.step, done.bucket);
  if (outcome.is_accepted()) {
    trace.record(member_of(replicas, done.group).stage, "reduce", StepTrace::kGradients, *start_us,
                 now_us());
  }
  apply(outcome);
}

void ReplicaState::on_transfer_done(const TransferDone& done) {
  if (!links->on_end(done.key)) return drops.add(plans::DropReason::kUnexpected);
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  const LinkTransfers::Ended ended = links->finish(done.key);
  const LinkTransfers::Transfer& transfer = ended.transfer;
  if (transfer.is_sent) {
    const char* kind = transfer.key.kind == Kind::ACTIVATION ? "SEND_F" : "SEND_B";
    trace.record(transfer.stage, slice_name(transfer.stage, kind, transfer.id.microbatch),
                 StepTrace::kSend, transfer.start_us, now_us(), transfer.id.microbatch);
  }
  if (ended.input) on_input({transfer.key, ended.input});
}

/// If memory was missing, says what the plan counts on for the stages that are here.
void ReplicaState::fail(const absl::Status& why) {
  if (retires) return;
  absl::Status told = why;
  for (const auto& [stage, replica] : replicas) {
    const gpu::StageModel& model = *replica.parts.model;
    told = gpu::with_estimate(told, replica.parts.options, model.activation_type());
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
  device->submit_aside(DeviceWork::kLast, {});
}

void ReplicaState::try_retire() {
  if (!device_is_drained || !reductions->is_idle() || !links->is_idle()) return;
  ReplicasRetired retired;
  retired.generation = config.plan.generation;
  retired.steps_done = program->steps_done();
  retired.has_common_state = program->has_common_state();
  retired.replicas = std::move(config.replicas);
  self->send(config.listener, std::move(retired));
  links->clear();
  averages.clear();
  copies.reset();
  traffic.reset();
  replicas.clear();
}

void ReplicaState::tell_activity() {
  if (retires) return;
  ReplicaActivity activity;
  activity.action = program->activity();
  activity.works = program->is_working();
  const uint64_t now = now_us();
  activity.action_us = now > activity_since_us ? now - activity_since_us : 0;
  self->send(config.listener, std::move(activity));
}

void ReplicaState::apply(const plans::ProgramOutcome& outcome) {
  if (drops.note(outcome)) apply(outcome.decisions());
}

void ReplicaState::apply(const plans::ProgramCommands& commands) {
  if (retires) return;
  if (!commands.empty()) activity_since_us = std::max(activity_since_us, now_us());
  for (const plans::ProgramCommand& command : commands) {
    std::visit([this](const auto& each) { carry_out(each); }, command);
  }
  if (const std::optional<uint64_t> step = program->computed_step()) expect_operations(*step);
  if constexpr (plans::kDebugChecks) {
    program->check_invariants();
    for (const auto& [stage, each] : averages) each->check_invariants();
  }
}

void ReplicaState::expect_operations(uint64_t step) {
  if (!operations->is_new(step)) return;
  reductions->expect(step);
  links->expect(step);
  links->await_inputs(step);
}

void ReplicaState::begin_operation(const plans::CollectiveKey& key) {
  const bool begins = links->begin(key) || reductions->begin(key);
  SKEIN_CHECK(begins) << "an operation begins that is not ready";
}

Outgoing ReplicaState::outgoing(const StageReplica& from, Kind kind, const plans::RunAction& run) {
  if (!links->carries(from.stage, kind)) {
    return traffic->outgoing(from, kind, run.step, run.action.microbatch);
  }
  Outgoing output;  // `LinkTransfers::pass_on` sends it.
  absl::StatusOr<net::TensorHandle> made = links->make_output(from, run.action);
  if (made.ok()) {
    output.memory = *std::move(made);
  } else {
    fail(made.status());
  }
  return output;
}

/// While a step is profiled, the trace hears when the output has left.
void ReplicaState::watch(Outgoing& output, const std::string& kind, const plans::RunAction& run) {
  if (!trace.profiles() || output.parts.empty()) return;
  const int32_t stage = run.action.stage, microbatch = run.action.microbatch;
  output.sent = {stage, slice_name(stage, kind, microbatch), microbatch, 0};
  output.on_sent = [to = Replica(self)](const TensorSent& sent) { caf::anon_send(to, sent); };
}

void ReplicaState::carry_out(const plans::RunAction& command) {
  const StageReplica& own = replicas.at(command.action.stage);
  const int32_t microbatch = command.action.microbatch;
  const plans::ActionType type = command.action.type;
  if (type == plans::ActionType::kForward) {
    Outgoing output = outgoing(own, Kind::ACTIVATION, command);
    watch(output, "SEND_F", command);
    ForwardWork forward{
        config.data, program->first_sample(microbatch, own.rows), config.job.training.seq_len,
        traffic->take({plans::InputKind::kActivation, command.step, own.stage, microbatch}),
        output.memory};
    gpu::Work work = forward_work(command, own, std::move(forward), program->sample_count());
    return device->submit(command, std::move(work), std::move(output));
  }
  Outgoing output;
  BackwardWork backward;
  backward.host_parts = reductions->host_parts(own);
  if (type != plans::ActionType::kBackwardWeight) {
    if (command.is_last_part()) output = outgoing(own, Kind::GRADIENT, command);
    watch(output, "SEND_B", command);
    if (command.part == 0) {
      backward.gradient =
          traffic->take({plans::InputKind::kGradient, command.step, own.stage, microbatch});
    }
    backward.output = output.memory;
  }
  gpu::Work work = backward_work(command, config.job.model, own, std::move(backward));
  device->submit(command, std::move(work), std::move(output));
}

void ReplicaState::carry_out(const plans::RunNorm& command) {
  device->submit(command, norm_work(replicas.at(command.stage)));
}

void ReplicaState::carry_out(const plans::RunUpdate& command) {
  trace.end_step(now_us(), command.profile,
                 [&](int32_t stage, const std::vector<SliceReport>& slices) {
                   const auto own = averages.find(stage);
                   const uint64_t staleness = own == averages.end() ? 0 : own->second->staleness();
                   reports->timings(replicas.at(stage).parts.id, command.step, staleness, slices);
                 });
  std::vector<StageUpdate> stages;
  for (const auto& [stage, own] : replicas) {
    StageUpdate update{own.parts.model, own.block_count, nullptr};
    if (averages.contains(stage)) update.addend = averages.at(stage)->take_addend();
    stages.push_back(std::move(update));
  }
  device->submit(command, update_work(command, config.job, std::move(stages), config.fail_point));
}

void ReplicaState::carry_out(const plans::RunValidation& command) {
  const StageReplica& own = replicas.at(command.stage);
  Outgoing output = traffic->outgoing(own, Kind::VALIDATION, command.step, command.microbatch);
  ForwardWork forward;
  forward.data = config.data;
  forward.first_sample =
      static_cast<uint64_t>(command.microbatch * config.plan.microbatch_rows + own.rows.begin);
  forward.seq_len = config.job.training.seq_len;
  forward.activations = traffic->take(
      {plans::InputKind::kValidation, command.step, command.stage, command.microbatch});
  forward.output = output.memory;
  device->submit(command, validation_work(command, own, std::move(forward)), std::move(output));
}

void ReplicaState::carry_out(const plans::SendReady& command) {
  reach(config.fail_point, FailPlace::kBeforeReady);
  const StageReplica& own = replicas.at(command.stage);
  const gpu::StageModel& model = *own.parts.model;
  plans::ReadyReport report;
  report.replica = own.parts.id;
  report.step = command.step;
  report.samples = static_cast<uint32_t>(own.rows.count * config.plan.microbatch_count);
  report.loss_sum = model.has_head() ? model.loss_sum() : 0;
  report.loss_tokens = model.has_head() ? static_cast<uint64_t>(model.loss_tokens()) : 0;
  report.needs_groups = !own.parts.groups.empty();
  report.norm_squared = *own.norm_squared;
  trace.on_ready(command.stage, now_us(), report);
  reports->ready(report);
}

void ReplicaState::carry_out(const plans::RunReduction& command) {
  expect_operations(command.step);
  reductions->start(command);
}

void ReplicaState::carry_out(const plans::SendReduced& command) {
  const StageReplica& own = replicas.at(command.stage);
  reports->reduced(own.parts.id, command.step, *own.norm_squared);
}

void ReplicaState::carry_out(const plans::SaveState& command) {
  device->submit_aside(DeviceWork::kSave,
                       copies->save(replicas.at(command.stage), command.steps_done));
}

void ReplicaState::carry_out(const plans::KeepSnapshot& command) {
  gpu::Work work = copies->keep(replicas.at(command.stage), command.steps_done);
  if (work.run) device->submit_aside(DeviceWork::kSnapshot, std::move(work));
}

void ReplicaState::carry_out(const plans::SendValidated& command) {
  const StageReplica& own = replicas.at(command.stage);
  const gpu::StageModel& model = *own.parts.model;
  reports->validated(own.parts.id, command.step, model.loss_sum(),
                     static_cast<uint64_t>(model.loss_tokens()));
}

void ReplicaState::carry_out(const plans::BeginRound&) {
  for (const auto& [stage, each] : averages) each->begin_round();
}

void ReplicaState::carry_out(const plans::RunAverage& command) {
  averages.at(command.stage)->begin(command.number);
}

}  // namespace skein::actors
