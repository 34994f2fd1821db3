#include "actors/replica/model_work.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "actors/averaging/model_floats.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::actors {
namespace {

gpu::GivenActivations given(const net::TensorHandle& tensor, gpu::NumberType type,
                            const gpu::StageModel& model) {
  if (tensor == nullptr) return {};
  if (type == gpu::NumberType::kFloat32) return *tensor;
  return {gpu::Numbers(tensor->data(), type), model.activation_elements()};
}

gpu::TakenActivations taken(const net::TensorHandle& tensor, gpu::NumberType type,
                            const gpu::StageModel& model) {
  const gpu::GivenActivations same = given(tensor, type, model);
  return {same.numbers, same.count};
}

/// A target of which no loss is counted (`gpu::Ops::CrossEntropy`).
constexpr int32_t kNoTarget = -1;

/// The input of a forward, alive until the device has done it.
struct ForwardInput {
  std::shared_ptr<gpu::StageModel> model;
  int64_t rows = 0;
  bool validates = false;
  ForwardWork forward;

  /// Reads tokens and targets; `run` then gets spans that live as long as its call.
  template <class Run>
  absl::Status with_input(Run run) const {
    const int64_t seq_len = forward.seq_len;
    std::vector<int32_t> tokens(model->has_embedding() ? rows * seq_len : 0);
    std::vector<int32_t> targets(model->has_head() ? rows * seq_len : 0);
    for (int64_t row = 0; row < rows; ++row) {
      if (tokens.empty() && targets.empty()) break;
      const uint64_t sample = forward.first_sample + static_cast<uint64_t>(row);
      auto part = [&](std::vector<int32_t>& all) {
        return all.empty() ? std::span<int32_t>()
                           : std::span<int32_t>(all).subspan(row * seq_len, seq_len);
      };
      if (sample >= forward.end_sample) {
        std::ranges::fill(part(targets), kNoTarget);
      } else if (validates) {
        SKEIN_RETURN_IF_ERROR(forward.data->validation_sample(sample, part(tokens), part(targets)));
      } else {
        SKEIN_RETURN_IF_ERROR(forward.data->training_sample(sample, part(tokens), part(targets)));
      }
    }
    gpu::StageModel::Input input;
    input.tokens = tokens;
    input.targets = targets;
    input.activations = taken(forward.activations, forward.activations_type, *model);
    return run(input);
  }
};

gpu::WorkKind to_work_kind(plans::ActionType type) {
  switch (type) {
    case plans::ActionType::kForward:
      return gpu::WorkKind::kForward;
    case plans::ActionType::kBackward:
      return gpu::WorkKind::kBackward;
    case plans::ActionType::kBackwardInput:
      return gpu::WorkKind::kBackwardInput;
    case plans::ActionType::kBackwardWeight:
      return gpu::WorkKind::kBackwardWeight;
  }
  return gpu::WorkKind::kOther;
}

/// Layers that a piece of a backward passes.
plans::LayerRange layers_of(const plans::RunAction& run, const StageReplica& replica) {
  if (run.is_whole()) return replica.parts.options.layers;
  SKEIN_CHECK(static_cast<size_t>(run.part_count) == replica.buckets.size())
      << run.part_count << " parts for " << replica.buckets.size() << " buckets";
  return replica.buckets[static_cast<size_t>(run.part)].layers;
}

double loss_scale_of(uint64_t sample_count, int64_t seq_len) {
  return 1.0 / (static_cast<double>(sample_count) * static_cast<double>(seq_len));
}

absl::Status final_norm(gpu::Ops& ops, gpu::StageModel& model, gpu::StageModel* head,
                        double* norm_squared) {
  SKEIN_RETURN_IF_ERROR(model.gradient_norm_squared(ops, norm_squared));
  if (head != nullptr) model.give_tied_gradient(ops, *head);
  return absl::OkStatus();
}

}  // namespace

gpu::Work forward_work(const plans::RunAction& run, const StageReplica& replica,
                       ForwardWork forward, uint64_t sample_count) {
  const double loss_scale = loss_scale_of(sample_count, forward.seq_len);
  ForwardInput input{replica.parts.model, replica.rows.count, false, std::move(forward)};
  gpu::Work work;
  work.kind = gpu::WorkKind::kForward;
  work.share = replica.block_count * replica.row_share;
  work.run = [input = std::move(input), loss_scale, begins = run.begins_step,
              microbatch = run.stash()](gpu::Ops& ops) -> absl::Status {
    if (begins) SKEIN_RETURN_IF_ERROR(input.model->start_step(ops, loss_scale));
    if (input.forward.tied_in) input.model->take_tied_weights(ops, *input.forward.tied_in);
    if (input.forward.tied_out) input.model->copy_tied_weights(ops, *input.forward.tied_out);
    return input.with_input([&](const gpu::StageModel::Input& spans) {
      return input.model->forward(
          ops, microbatch, spans,
          given(input.forward.output, input.forward.output_type, *input.model));
    });
  };
  return work;
}

gpu::Work validation_work(const plans::RunValidation& run, const StageReplica& replica,
                          ForwardWork forward) {
  const bool is_padding = forward.first_sample >= forward.end_sample;
  ForwardInput input{replica.parts.model, replica.rows.count, true, std::move(forward)};
  gpu::Work work;
  work.kind = gpu::WorkKind::kForward;
  work.share = is_padding ? 0 : replica.block_count * replica.row_share;
  work.run = [input = std::move(input), is_padding,
              begins = run.begins](gpu::Ops& ops) -> absl::Status {
    if (begins) input.model->reset_loss();
    if (is_padding) {  // Whoever takes it has other rows beside it, or none with a target.
      if (input.forward.output) std::ranges::fill(*input.forward.output, 0.0F);
      return absl::OkStatus();
    }
    return input.with_input([&](const gpu::StageModel::Input& spans) {
      return input.model->evaluate(
          ops, spans, given(input.forward.output, input.forward.output_type, *input.model));
    });
  };
  return work;
}

gpu::Work backward_work(const plans::RunAction& run, const plans::ModelSpec& model,
                        const StageReplica& replica, BackwardWork backward) {
  const plans::ActionType type = run.action.type;
  const plans::LayerRange layers = layers_of(run, replica);
  const bool ends_norm = run.ends_step && run.is_last_part() && replica.parts.groups.empty();
  const bool shares = run.ends_step && !replica.parts.groups.empty();
  gpu::Work work;
  work.kind = to_work_kind(type);
  work.share = block_count(model, layers) * replica.row_share;
  work.run = [model = replica.parts.model, backward = std::move(backward), type, layers, ends_norm,
              shares, norm = replica.norm_squared, begins = run.begins_step,
              microbatch = run.stash()](gpu::Ops& ops) -> absl::Status {
    const gpu::TakenActivations in = taken(backward.gradient, backward.gradient_type, *model);
    const gpu::GivenActivations out = given(backward.output, backward.output_type, *model);
    if (begins) SKEIN_RETURN_IF_ERROR(model->start_gradients(ops));
    absl::Status status;
    if (type == plans::ActionType::kBackward) {
      status = model->backward_part(ops, microbatch, layers, in, out);
    } else if (type == plans::ActionType::kBackwardInput) {
      status = model->backward_input(ops, microbatch, in, out);
    } else {
      status = model->backward_weight_part(ops, microbatch, layers);
    }
    if (status.ok() && backward.tied_in) model->add_tied_gradient(ops, *backward.tied_in);
    if (status.ok() && backward.tied_out) model->copy_tied_gradient(ops, *backward.tied_out);
    if (status.ok() && shares) status = model->share_gradients(ops, layers, backward.host_parts);
    if (status.ok() && ends_norm) status = model->gradient_norm_squared(ops, norm.get());
    return status;
  };
  return work;
}

gpu::Work share_work(const StageReplica& replica, const gpu::GradientParts& host_parts,
                     std::shared_ptr<gpu::StageModel> head) {
  gpu::Work work;
  work.run = [model = replica.parts.model, norm = replica.norm_squared, host_parts,
              head = std::move(head), layers = replica.parts.options.layers,
              is_alone = replica.parts.groups.empty()](gpu::Ops& ops) {
    if (head) model->add_tied_gradient(ops, *head);
    return is_alone ? final_norm(ops, *model, head.get(), norm.get())
                    : model->share_gradients(ops, layers, host_parts);
  };
  return work;
}

gpu::Work begin_work(std::vector<std::shared_ptr<gpu::StageModel>> models, uint64_t sample_count,
                     int64_t seq_len) {
  gpu::Work work;
  // The step's first action, which takes no time by itself: what stalls a step stalls it here.
  work.kind = gpu::WorkKind::kForward;
  work.share = 0;
  work.run = [models = std::move(models),
              loss_scale = loss_scale_of(sample_count, seq_len)](gpu::Ops& ops) -> absl::Status {
    for (const auto& model : models) SKEIN_RETURN_IF_ERROR(model->start_step(ops, loss_scale));
    return absl::OkStatus();
  };
  return work;
}

gpu::Work norm_work(const StageReplica& replica, std::shared_ptr<gpu::StageModel> head) {
  gpu::Work work;
  work.run = [model = replica.parts.model, norm = replica.norm_squared, head = std::move(head)](
                 gpu::Ops& ops) { return final_norm(ops, *model, head.get(), norm.get()); };
  return work;
}

gpu::Work update_work(const plans::RunUpdate& run, const plans::JobSpec& job,
                      std::vector<StageUpdate> stages, FailPointHandle fail_point) {
  gpu::UpdateOptions options;
  options.lr = plans::learning_rate(job, static_cast<int64_t>(run.job_step));
  options.gradient_factor = plans::clip_factor(run.gradient_norm, job.training.max_norm);
  options.step = static_cast<int64_t>(run.job_step);
  gpu::Work work;
  work.kind = gpu::WorkKind::kUpdate;
  work.share = 0;
  for (const StageUpdate& each : stages) work.share += each.block_count;
  work.run = [stages = std::move(stages), options, fail_point, by_stage = run.by_stage,
              max_norm = job.training.max_norm](gpu::Ops& ops) -> absl::Status {
    for (const StageUpdate& each : stages) {
      gpu::UpdateOptions own = options;
      if (by_stage) {
        const double norm = std::sqrt(*each.norm_squared);
        if (!std::isfinite(norm)) continue;  // The coordinator hears of it, and ends the run.
        own.gradient_factor = plans::clip_factor(norm, max_norm * each.clip_share);
      }
      SKEIN_RETURN_IF_ERROR(each.model->update(ops, own));
      if (each.addend) SKEIN_RETURN_IF_ERROR(add_weights(*each.model, *each.addend));
      reach(fail_point, FailPlace::kWhileApplying);
    }
    return absl::OkStatus();
  };
  return work;
}

}  // namespace skein::actors
