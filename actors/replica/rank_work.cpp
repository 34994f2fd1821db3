#include <algorithm>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/averaging/model_floats.hpp"
#include "actors/replica/rank.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::actors {
namespace {

/// Everything a micro-batch's forward needs, alive until the device has done it.
struct ForwardInput {
  std::shared_ptr<gpu::StageModel> model;
  std::shared_ptr<const gpu::TokenData> data;
  uint64_t first = 0;  // Sample, or window of the validation data, of the first row.
  int64_t rows = 0;
  int64_t seq_len = 0;
  bool validates = false;
  net::TensorHandle activations;
  net::TensorHandle output;

  std::span<float> output_span() const {
    return output ? std::span<float>(*output) : std::span<float>();
  }

  /// Reads tokens and targets; `run` then gets spans that live as long as its call.
  template <class Run>
  absl::Status with_input(Run run) const {
    std::vector<int32_t> tokens(model->has_embedding() ? rows * seq_len : 0);
    std::vector<int32_t> targets(model->has_head() ? rows * seq_len : 0);
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t sample = first + static_cast<uint64_t>(row);
      auto part = [&](std::vector<int32_t>& all) {
        return all.empty() ? std::span<int32_t>()
                           : std::span<int32_t>(all).subspan(row * seq_len, seq_len);
      };
      if (tokens.empty() && targets.empty()) break;
      if (validates) {
        data->validation_sample(sample, part(tokens), part(targets));
      } else {
        data->training_sample(sample, part(tokens), part(targets));
      }
    }
    gpu::StageModel::Input input;
    input.tokens = tokens;
    input.targets = targets;
    if (activations) input.activations = *activations;
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

}  // namespace

double block_count(const plans::ModelSpec& model, const plans::LayerRange& layers) {
  int64_t blocks = 0;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    if (plans::layer_kind(model, layer) == plans::LayerKind::kBlock) ++blocks;
  }
  return static_cast<double>(blocks);
}

absl::Status snapshot(const gpu::StageModel& model, ShardRequest& copy) {
  const size_t count = copy.parameters.size();
  auto read_all = [&](gpu::StateKind kind, std::vector<std::vector<float>>& to) -> absl::Status {
    to.resize(count);
    for (size_t i = 0; i < count; ++i) {
      to[i].resize(static_cast<size_t>(plans::element_count(copy.parameters[i])));
      SKEIN_RETURN_IF_ERROR(model.read_state(i, kind, to[i]));
    }
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(read_all(gpu::StateKind::kWeight, copy.weights));
  SKEIN_RETURN_IF_ERROR(read_all(gpu::StateKind::kMomentFirst, copy.moments_first));
  return read_all(gpu::StateKind::kMomentSecond, copy.moments_second);
}

net::TensorHandle RankState::take_input(const plans::InputKey& key) {
  auto node = inputs.extract(key);
  return node.empty() ? nullptr : std::move(node.mapped());
}

gpu::Work RankState::forward_work(const plans::RunAction& run, HeldReplica& replica,
                                  const net::TensorHandle& output) {
  const auto& training = config.job.training;
  ForwardInput input;
  input.model = replica.parts.model;
  input.data = config.data;
  input.first = program->first_sample(run.action.microbatch, replica.rows);
  input.rows = replica.rows.count;
  input.seq_len = training.seq_len;
  input.activations =
      take_input({plans::InputKind::kActivation, run.step, replica.stage, run.action.microbatch});
  input.output = output;
  const double loss_scale =
      1.0 / (static_cast<double>(program->sample_count()) * static_cast<double>(training.seq_len));
  gpu::Work work;
  work.kind = gpu::WorkKind::kForward;
  work.share = replica.block_count * replica.row_share;
  work.run = [input = std::move(input), loss_scale, begins = run.begins_step,
              microbatch = run.action.microbatch](gpu::Ops& ops) -> absl::Status {
    if (begins) SKEIN_RETURN_IF_ERROR(input.model->start_step(ops, loss_scale));
    return input.with_input([&](const gpu::StageModel::Input& spans) {
      return input.model->forward(ops, microbatch, spans, input.output_span());
    });
  };
  return work;
}

/// What profilers show a piece of work as.
std::string RankState::name_of(const plans::ProgramCommand& command) {
  if (const auto* run = std::get_if<plans::RunAction>(&command)) {
    const std::string action = plans::to_text(run->action);
    return run->is_whole() ? action : absl::StrCat(action, " part ", run->part);
  }
  if (std::holds_alternative<plans::RunNorm>(command)) return "norm";
  return std::holds_alternative<plans::RunUpdate>(command) ? "update" : "validation";
}

/// If memory was missing, with what the plan counts on for the stages that are here.
absl::Status RankState::with_estimates(absl::Status why) const {
  for (const auto& [stage, replica] : held) {
    why = gpu::with_estimate(why, replica.parts.options, replica.parts.model->activation_type());
  }
  return why;
}

plans::WorkPiece RankState::piece_of(const plans::ProgramCommand& command) const {
  const plans::ReplicaId own = config.replicas.front().id;
  plans::WorkPiece piece;
  piece.device = static_cast<int32_t>(plans::replica_of(config.plan, own).worker.value) - 1;
  piece.index = -1;  // Nothing but an action of a step sleeps.
  const auto* run = std::get_if<plans::RunAction>(&command);
  if (run == nullptr || run->part > 0) return piece;
  piece.step = static_cast<int32_t>(run->step);
  const size_t rank =
      static_cast<size_t>(config.plan.stages[static_cast<size_t>(run->action.stage)].rank);
  const plans::ActionList& actions = config.plan.actions[rank];
  const auto found = std::find(actions.begin(), actions.end(), run->action);
  piece.index = static_cast<int32_t>(found - actions.begin());
  return piece;
}

plans::LayerRange RankState::layers_of(const plans::RunAction& run,
                                       const HeldReplica& replica) const {
  if (run.is_whole()) return replica.parts.options.layers;
  SKEIN_CHECK(static_cast<size_t>(run.part_count) == replica.buckets.size())
      << run.part_count << " parts for " << replica.buckets.size() << " buckets";
  return replica.buckets[static_cast<size_t>(run.part)].layers;
}

gpu::Work RankState::backward_work(const plans::RunAction& run, HeldReplica& replica,
                                   const net::TensorHandle& output) {
  net::TensorHandle gradient;
  const plans::ActionType type = run.action.type;
  if (type != plans::ActionType::kBackwardWeight && run.part == 0) {
    gradient =
        take_input({plans::InputKind::kGradient, run.step, replica.stage, run.action.microbatch});
  }
  const bool ends_norm = run.ends_step && replica.parts.groups.empty();
  const bool shares = run.ends_step && !replica.parts.groups.empty();
  gpu::Work work;
  const plans::LayerRange layers = layers_of(run, replica);
  work.kind = to_work_kind(type);
  work.share = block_count(config.job.model, layers) * replica.row_share;
  work.run = [model = replica.parts.model, gradient, target = output, type, layers, ends_norm,
              shares, parts = host_parts(replica), norm = replica.norm_squared,
              microbatch = run.action.microbatch](gpu::Ops& ops) {
    const std::span<const float> in =
        gradient ? std::span<const float>(*gradient) : std::span<const float>();
    const std::span<float> out = target ? std::span<float>(*target) : std::span<float>();
    absl::Status status;
    if (type == plans::ActionType::kBackward) {
      status = model->backward_part(ops, microbatch, layers, in, out);
    } else if (type == plans::ActionType::kBackwardInput) {
      status = model->backward_input(ops, microbatch, in, out);
    } else {
      status = model->backward_weight_part(ops, microbatch, layers);
    }
    if (status.ok() && shares) status = model->share_gradients(ops, layers, parts);
    if (status.ok() && ends_norm) status = model->gradient_norm_squared(ops, norm.get());
    return status;
  };
  return work;
}

gpu::Work RankState::validation_work(const plans::RunValidation& run, HeldReplica& replica,
                                     const net::TensorHandle& output) {
  ForwardInput input;
  input.model = replica.parts.model;
  input.data = config.data;
  input.first =
      static_cast<uint64_t>(run.microbatch * config.plan.microbatch_rows + replica.rows.begin);
  input.rows = replica.rows.count;
  input.seq_len = config.job.training.seq_len;
  input.validates = true;
  input.activations =
      take_input({plans::InputKind::kValidation, run.step, replica.stage, run.microbatch});
  input.output = output;
  gpu::Work work;
  work.kind = gpu::WorkKind::kForward;
  work.share = replica.block_count * replica.row_share;
  work.run = [input = std::move(input), begins = run.begins](gpu::Ops& ops) {
    if (begins) input.model->reset_loss();
    return input.with_input([&](const gpu::StageModel::Input& spans) {
      return input.model->evaluate(ops, spans, input.output_span());
    });
  };
  return work;
}

gpu::Work RankState::update_work(const plans::RunUpdate& run) {
  gpu::UpdateOptions options;
  options.lr = plans::learning_rate(config.job, static_cast<int64_t>(run.job_step));
  options.gradient_factor = plans::clip_factor(run.gradient_norm, config.job.training.max_norm);
  options.step = static_cast<int64_t>(run.job_step);
  gpu::Work work;
  work.kind = gpu::WorkKind::kUpdate;
  struct Update {
    std::shared_ptr<gpu::StageModel> model;
    std::shared_ptr<const std::vector<float>> addend;  // Of groups of columns.
  };
  std::vector<Update> updates;
  work.share = 0;
  for (auto& [stage, replica] : held) {
    updates.push_back({replica.parts.model, std::exchange(replica.pending, nullptr)});
    work.share += replica.block_count;
  }
  work.run = [updates, options, fail_point = config.fail_point](gpu::Ops& ops) -> absl::Status {
    for (const Update& each : updates) {
      SKEIN_RETURN_IF_ERROR(each.model->update(ops, options));
      if (each.addend) SKEIN_RETURN_IF_ERROR(add_weights(*each.model, *each.addend));
      reach(fail_point, FailPlace::kWhileApplying);
    }
    return absl::OkStatus();
  };
  return work;
}

Outgoing RankState::outgoing(const HeldReplica& from, net::schema::TensorKind kind, uint64_t step,
                             int32_t microbatch) {
  const bool backwards = kind == net::schema::TensorKind::GRADIENT;
  const auto& routes = backwards ? from.routes_backward : from.routes_forward;
  Outgoing out;
  if (routes.empty()) return out;
  if (link_of(from.stage, kind) != nullptr) {  // `pass_on` sends it.
    absl::StatusOr<net::TensorHandle> taken = from.device_tensors->take();
    if (taken.ok()) {
      out.memory = *std::move(taken);
    } else {
      fail(with_estimates(taken.status()));
    }
    return out;
  }
  out.memory = as_tensor(from.staging->take());
  out.plane = config.plane;
  for (const plans::Route& route : routes) {
    net::DataPlane::Rows part;
    part.key = {config.plan.generation, route.to.value, kind, step,
                static_cast<uint32_t>(microbatch)};
    part.sender = from.parts.id.value;
    part.row_begin = static_cast<uint32_t>(route.rows.begin);
    part.row_count = static_cast<uint32_t>(route.rows.count);
    part.payload =
        std::span<const float>(*out.memory)
            .subspan(static_cast<size_t>((route.rows.begin - from.rows.begin) * row_floats),
                     static_cast<size_t>(route.rows.count * row_floats));
    part.owner = out.memory;
    const plans::WorkerId worker = plans::replica_of(config.plan, route.to).worker;
    out.parts.emplace_back(config.addresses.at(worker), std::move(part));
  }
  if (!profiles || kind == net::schema::TensorKind::VALIDATION) return out;
  out.listener = Rank(self);
  out.sent.stage = from.stage;
  out.sent.slice = absl::StrCat(from.stage, backwards ? "SEND_B" : "SEND_F", microbatch);
  out.sent.microbatch = microbatch;
  return out;
}

void Outgoing::send(uint64_t now_us) {
  sent.start_us = now_us;
  for (auto& [address, part] : parts) {
    if (listener) {
      // The owner goes when the bytes are in the socket: its end is the end of the send.
      auto at_end = [memory = memory, to = listener, sent = sent](const void*) {
        caf::anon_send(to, sent);
      };
      part.owner = std::shared_ptr<const void>(part.payload.data(), at_end);
    }
    plane->send(address, std::move(part));
  }
  parts.clear();
  memory.reset();
}

}  // namespace skein::actors
