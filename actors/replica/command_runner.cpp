#include "actors/replica/command_runner.hpp"

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/replica/model_work.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

}  // namespace

std::string slice_name(int32_t stage, const std::string& kind, int32_t microbatch) {
  return absl::StrCat(stage, kind, microbatch);
}

CommandRunner::CommandRunner(Options options, const ReplicaConfig& config,
                             const plans::WorkerProgram& program, ReplicaParts& parts)
    : options_(std::move(options)), config_(config), program_(program), parts_(parts) {}

void CommandRunner::run(const plans::ProgramCommand& command) {
  std::visit([this](const auto& each) { carry_out(each); }, command);
}

void CommandRunner::expect_operations(uint64_t step) {
  if (!parts_.operations->is_new(step)) return;
  parts_.reductions->expect(step);
  parts_.links->expect(step);
  parts_.links->await_inputs(step);
}

void CommandRunner::carry_out(const plans::RunAction& command) {
  const StageReplica& own = parts_.replicas.at(command.action.stage);
  const bool is_forward = command.action.type == plans::ActionType::kForward;
  is_forward ? run_forward(command, own) : run_backward(command, own);
}

void CommandRunner::run_forward(const plans::RunAction& command, const StageReplica& own) {
  const int32_t microbatch = command.action.microbatch;
  Outgoing output = outgoing(own, Kind::ACTIVATION, command);
  if (parts_.tokens) {
    output.memory = parts_.tokens->make_activation(own, command.step, microbatch);
  }
  ForwardWork forward;
  forward.data = config_.data;
  forward.first_sample = program_.first_sample(command.step, microbatch, own.rows);
  forward.end_sample = program_.first_sample(command.step, 0, {0, own.rows.count}) +
                       program_.sample_count(command.step);
  forward.seq_len = config_.job.training.seq_len;
  forward.activations =
      parts_.traffic->take({plans::InputKind::kActivation, command.step, own.stage, microbatch});
  forward.activations_type = parts_.links->type_of(own.stage - 1, Kind::ACTIVATION);
  forward.output = output.memory;
  forward.output_type = parts_.links->type_of(own.stage, Kind::ACTIVATION);
  if (own.tied_end && command.begins_step) {
    if (own.stage == 0) {
      forward.tied_out = parts_.traffic->add_tied(own, command.step, output);
    } else {
      forward.tied_in =
          parts_.traffic->take({plans::InputKind::kTiedWeights, command.step, own.stage, 0});
    }
  }
  gpu::Work work =
      forward_work(command, own, std::move(forward), program_.sample_count(command.step));
  parts_.device->submit(command, std::move(work), std::move(output));
}

void CommandRunner::run_backward(const plans::RunAction& command, const StageReplica& own) {
  const int32_t microbatch = command.action.microbatch;
  const bool passes_on = command.action.type != plans::ActionType::kBackwardWeight;
  Outgoing output;
  if (passes_on && command.is_last_part()) output = outgoing(own, Kind::GRADIENT, command);
  BackwardWork backward;
  backward.host_parts = parts_.reductions->host_parts(own);
  if (passes_on && command.part == 0) {
    backward.gradient =
        parts_.traffic->take({plans::InputKind::kGradient, command.step, own.stage, microbatch});
  }
  backward.gradient_type = parts_.links->type_of(own.stage + 1, Kind::GRADIENT);
  backward.output = output.memory;
  backward.output_type = parts_.links->type_of(own.stage, Kind::GRADIENT);
  if (own.tied_end && command.ends_step && command.is_last_part()) {
    if (own.stage == 0) {
      backward.tied_in =
          parts_.traffic->take({plans::InputKind::kTiedGradient, command.step, own.stage, 0});
    } else {
      backward.tied_out = parts_.traffic->add_tied(own, command.step, output);
    }
  }
  gpu::Work work = backward_work(command, config_.job.model, own, std::move(backward));
  parts_.device->submit(command, std::move(work), std::move(output));
}

Outgoing CommandRunner::outgoing(const StageReplica& from, Kind kind, const plans::RunAction& run) {
  const int32_t microbatch = run.action.microbatch;
  Outgoing output;
  if (parts_.tokens && kind == Kind::ACTIVATION) return output;  // It stays here for now.
  if (parts_.links->carries(from.stage, kind)) {  // `LinkTransfers::pass_on` sends it.
    absl::StatusOr<net::TensorHandle> made = parts_.links->make_output(from, run.action);
    if (!made.ok()) options_.fail(made.status());
    output.memory = made.value_or(nullptr);
    return output;
  }
  output = parts_.tokens ? parts_.tokens->gradient(from, run.step, microbatch,
                                                   program_.input_holders(from.stage, microbatch))
                         : parts_.traffic->outgoing(from, kind, run.step, microbatch);
  watch(output, from.stage, kind, microbatch, run.step);
  return output;
}

/// While a step is profiled, says when the output has left.
void CommandRunner::watch(Outgoing& output, int32_t stage, Kind kind, int32_t microbatch,
                          uint64_t step) {
  if (!parts_.trace.profiles() || output.parts.empty()) return;
  const char* name = kind == Kind::ACTIVATION ? "SEND_F" : "SEND_B";
  output.sent = {stage, slice_name(stage, name, microbatch), microbatch, 0, step};
  output.on_sent = options_.on_sent;
}

void CommandRunner::carry_out(const plans::RunBegin& command) {
  if (parts_.tokens) parts_.tokens->forget(command.step);
  std::vector<std::shared_ptr<gpu::StageModel>> models;
  for (const auto& [stage, own] : parts_.replicas) models.push_back(own.parts.model);
  parts_.device->submit(command, begin_work(std::move(models), program_.sample_count(command.step),
                                            config_.job.training.seq_len));
}

/// Pulled tokens may bring both ends of a tied embedding to one worker.
std::shared_ptr<gpu::StageModel> CommandRunner::tied_head(const StageReplica& own) const {
  const int32_t last = config_.plan.stage_count - 1;
  if (!parts_.tokens || !config_.job.model.tied_head || own.stage != 0 || last == 0) return nullptr;
  const auto head = parts_.replicas.find(last);
  return head == parts_.replicas.end() ? nullptr : head->second.parts.model;
}

void CommandRunner::carry_out(const plans::RunShare& command) {
  const StageReplica& own = parts_.replicas.at(command.stage);
  parts_.device->submit(command,
                        share_work(own, parts_.reductions->host_parts(own), tied_head(own)));
}

void CommandRunner::carry_out(const plans::SendTokenReport& command) {
  options_.report(net::TokenReport{parts_.replicas.at(command.stage).parts.id, command.step,
                                   command.token, command.event});
}

void CommandRunner::carry_out(const plans::SendOutput& command) {
  Outgoing output = parts_.tokens->activation(parts_.replicas.at(command.stage), command);
  watch(output, command.stage, Kind::ACTIVATION, command.token, command.step);
  output.send(options_.now_us());
}

void CommandRunner::carry_out(const plans::RunNorm& command) {
  const StageReplica& own = parts_.replicas.at(command.stage);
  parts_.device->submit(command, norm_work(own, tied_head(own)));
}

void CommandRunner::end_step(const plans::RunUpdate& command) {
  parts_.trace.end_step(
      command.step, options_.now_us(), command.profile,
      [&](int32_t stage, uint64_t step, std::vector<net::Slice> slices) {
        const auto own = parts_.averages.find(stage);
        const uint64_t staleness = own == parts_.averages.end() ? 0 : own->second->staleness();
        options_.report(net::Timings{parts_.replicas.at(stage).parts.id, step, std::move(slices),
                                     staleness, parts_.trace.weight_delay(stage)});
      });
}

void CommandRunner::carry_out(const plans::RunUpdate& command) {
  // One that nobody has ordered belongs to the step that it ends: nothing else runs beside it.
  if (!command.by_stage) end_step(command);
  std::vector<StageUpdate> stages;
  for (const auto& [stage, own] : parts_.replicas) {
    StageUpdate update{own.parts.model, own.block_count, nullptr, own.norm_squared, own.clip_share};
    if (parts_.averages.contains(stage)) update.addend = parts_.averages.at(stage)->take_addend();
    stages.push_back(std::move(update));
  }
  parts_.device->submit(command,
                        update_work(command, config_.job, std::move(stages), config_.fail_point));
}

void CommandRunner::carry_out(const plans::RunValidation& command) {
  const StageReplica& own = parts_.replicas.at(command.stage);
  Outgoing output = parts_.tokens ? parts_.tokens->validation(own, command.step, command.microbatch)
                                  : parts_.traffic->outgoing(own, Kind::VALIDATION, command.step,
                                                             command.microbatch);
  const int64_t piece_rows = parts_.tokens ? own.rows.count : config_.plan.microbatch_rows;
  ForwardWork forward;
  forward.data = config_.data;
  forward.first_sample = static_cast<uint64_t>(command.microbatch * piece_rows + own.rows.begin);
  forward.end_sample = static_cast<uint64_t>(plans::validation_samples(config_.job));
  forward.seq_len = config_.job.training.seq_len;
  forward.activations = parts_.traffic->take(
      {plans::InputKind::kValidation, command.step, command.stage, command.microbatch});
  forward.output = output.memory;
  parts_.device->submit(command, validation_work(command, own, std::move(forward)),
                        std::move(output));
}

void CommandRunner::carry_out(const plans::SendReady& command) {
  reach(config_.fail_point, FailPlace::kBeforeReady);
  const StageReplica& own = parts_.replicas.at(command.stage);
  const gpu::StageModel& model = *own.parts.model;
  plans::ReadyReport report;
  report.replica = own.parts.id;
  report.step = command.step;
  report.loss_sum = model.has_head() ? model.loss_sum() : 0;
  report.loss_tokens = model.has_head() ? static_cast<uint64_t>(model.loss_tokens()) : 0;
  report.weight_delay = command.weight_delay;
  report.needs_groups = !own.parts.groups.empty();
  report.norm_squared = *own.norm_squared;
  parts_.trace.on_ready(command.stage, options_.now_us(), report);
  if (config_.share) report.turns = config_.share->report();
  options_.report(report);
}

void CommandRunner::carry_out(const plans::RunReduction& command) {
  expect_operations(command.step);
  parts_.reductions->start(command);
}

void CommandRunner::carry_out(const plans::SendReduced& command) {
  const StageReplica& own = parts_.replicas.at(command.stage);
  options_.report(net::Reduced{own.parts.id, command.step, *own.norm_squared});
}

void CommandRunner::carry_out(const plans::SendEarlySignal& command) {
  options_.report(net::EarlySignal{parts_.replicas.at(command.stage).parts.id, command.step});
}

void CommandRunner::carry_out(const plans::SaveState& command) {
  parts_.device->submit_aside(
      DeviceWork::kSave,
      parts_.copies->save(parts_.replicas.at(command.stage), command.steps_done));
}

void CommandRunner::carry_out(const plans::KeepSnapshot& command) {
  gpu::Work work = parts_.copies->keep(parts_.replicas.at(command.stage), command.steps_done);
  if (work.run) parts_.device->submit_aside(DeviceWork::kSnapshot, std::move(work));
}

void CommandRunner::carry_out(const plans::SendValidated& command) {
  const StageReplica& own = parts_.replicas.at(command.stage);
  const gpu::StageModel& model = *own.parts.model;
  options_.report(net::Validated{own.parts.id, command.step, model.loss_sum(),
                                 static_cast<uint64_t>(model.loss_tokens())});
}

void CommandRunner::carry_out(const plans::BeginRound&) {
  for (const auto& [stage, each] : parts_.averages) each->begin_round();
}

void CommandRunner::carry_out(const plans::RunAverage& command) {
  parts_.averages.at(command.stage)->begin(command.number);
}

}  // namespace skein::actors
