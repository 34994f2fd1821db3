#include "actors/replica/tensor_traffic.hpp"

#include <algorithm>
#include <utility>

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

/// The stage behind is here, and takes all that this one makes.
bool hands_over(const StageReplica& replica, const StageReplicas& replicas) {
  const auto behind = replicas.find(replica.stage + 1);
  return behind != replicas.end() && replica.routes_forward.size() == 1 &&
         replica.routes_forward.front().to == behind->second.parts.id &&
         behind->second.rows == replica.rows;
}

}  // namespace

Kind to_schema(plans::InputKind kind) {
  switch (kind) {
    case plans::InputKind::kActivation:
      return Kind::ACTIVATION;
    case plans::InputKind::kGradient:
      return Kind::GRADIENT;
    case plans::InputKind::kValidation:
      return Kind::VALIDATION;
    case plans::InputKind::kTiedWeights:
      return Kind::TIED_WEIGHTS;
    case plans::InputKind::kTiedGradient:
      return Kind::TIED_GRADIENT;
  }
  return Kind::ACTIVATION;
}

plans::InputKind from_schema(Kind kind) {
  switch (kind) {
    case Kind::GRADIENT:
      return plans::InputKind::kGradient;
    case Kind::VALIDATION:
      return plans::InputKind::kValidation;
    case Kind::TIED_WEIGHTS:
      return plans::InputKind::kTiedWeights;
    case Kind::TIED_GRADIENT:
      return plans::InputKind::kTiedGradient;
    default:
      return plans::InputKind::kActivation;  // No other kind has a stream here.
  }
}

TensorTraffic::TensorTraffic(Options options, const StageReplicas& replicas)
    : options_(std::move(options)) {
  for (const auto& [stage, replica] : replicas) {
    here_.insert(replica.parts.id);
    if (hands_over(replica, replicas)) handing_over_.insert(stage);
  }
  if (!options_.follows_routes) return;
  for (const auto& [stage, replica] : replicas) {
    staging_[stage] =
        gpu::StagingPool::create(options_.device, replica.rows.count * options_.row_floats);
    open_inputs(replica);
    if (replica.tied_end) open_tied(replica);
  }
}

void TensorTraffic::open_tied(const StageReplica& replica) {
  if (!tied_staging_)
    tied_staging_ = gpu::StagingPool::create(options_.device, options_.tied_floats);
  if (here_.contains(*replica.tied_end)) return;
  net::TensorInbox::StreamSpec stream;
  stream.generation = options_.plan.generation;
  stream.receiver = replica.parts.id.value;
  stream.kind = replica.stage == 0 ? Kind::TIED_GRADIENT : Kind::TIED_WEIGHTS;
  stream.row_count = 1;
  stream.row_floats = static_cast<uint32_t>(options_.tied_floats);
  stream.tensors_max = 1;  // Of a step, and no end is a step ahead of the other.
  stream.on_tensor = options_.on_tensor;
  options_.plane->inbox().open(std::move(stream));
}

net::TensorHandle TensorTraffic::add_tied(const StageReplica& from, uint64_t step, Outgoing& out) {
  const Kind kind = from.stage == 0 ? Kind::TIED_WEIGHTS : Kind::TIED_GRADIENT;
  out.tied = Outgoing::Tied{};
  Outgoing::Tied& tied = *out.tied;
  tied.key = {options_.plan.generation, from.tied_end->value, kind, step, 0};
  tied.values = tied_staging_->take();
  tied.sender = from.parts.id.value;
  if (!here_.contains(*from.tied_end)) {
    const plans::WorkerId worker = plans::replica_of(options_.plan, *from.tied_end).worker;
    tied.address = options_.addresses.at(worker);
  }
  out.on_tensor = options_.on_tensor;
  out.plane = options_.plane;
  return tied.values;
}

void TensorTraffic::open_inputs(const StageReplica& replica) {
  // Both directions use the same routes: what we send one way is what comes the other way.
  auto open = [&](plans::InputKind kind, const std::vector<plans::Route>& routes,
                  uint32_t tensors_max) {
    net::TensorInbox::StreamSpec stream;
    stream.generation = options_.plan.generation;
    stream.receiver = replica.parts.id.value;
    stream.kind = to_schema(kind);
    stream.row_begin = static_cast<uint32_t>(replica.rows.begin);
    stream.row_count = static_cast<uint32_t>(replica.rows.count);
    stream.row_floats = static_cast<uint32_t>(options_.row_floats);
    for (const plans::Route& route : routes) {
      stream.parts.emplace_back(static_cast<uint32_t>(route.rows.begin),
                                static_cast<uint32_t>(route.rows.count));
    }
    stream.tensors_max = tensors_max;
    stream.on_tensor = options_.on_tensor;
    options_.plane->inbox().open(std::move(stream));
  };
  // A neighbour never waits for us to take an input of its step: one for every micro-batch, and one
  // that is already of the next step. With several steps in flight it has as many forwards ahead as
  // there are stages, at most.
  const auto step_tensors = static_cast<uint32_t>(std::max<int64_t>(options_.plan.microbatch_count,
                                                                    options_.plan.stage_count)) +
                            1;
  const bool receives = replica.stage > 0 && !handing_over_.contains(replica.stage - 1);
  const bool returns = !replica.routes_forward.empty() && !handing_over_.contains(replica.stage);
  if (receives && !options_.linked.contains(replica.stage - 1)) {
    open(plans::InputKind::kActivation, replica.routes_backward, step_tensors);
  }
  if (returns && !options_.linked.contains(replica.stage)) {
    open(plans::InputKind::kGradient, replica.routes_forward, step_tensors);
  }
  if (receives) {
    open(plans::InputKind::kValidation, replica.routes_backward, kValidationTensorsMax);
  }
}

plans::InputKey TensorTraffic::input_key(const net::TensorKey& key) const {
  return {from_schema(key.kind), key.step,
          plans::stage_of(options_.plan, plans::ReplicaId{key.receiver}),
          static_cast<int32_t>(key.microbatch)};
}

void TensorTraffic::keep(const plans::InputKey& key, net::TensorHandle tensor) {
  inputs_[key] = std::move(tensor);
}

net::TensorHandle TensorTraffic::take(const plans::InputKey& key) {
  auto node = inputs_.extract(key);
  return node.empty() ? nullptr : std::move(node.mapped());
}

Outgoing TensorTraffic::outgoing(const StageReplica& from, Kind kind, uint64_t step,
                                 int32_t microbatch) {
  const auto& routes = kind == Kind::GRADIENT ? from.routes_backward : from.routes_forward;
  Outgoing out;
  if (routes.empty()) return out;
  out.memory = staging_.at(from.stage)->take();
  if (handing_over_.contains(kind == Kind::GRADIENT ? from.stage - 1 : from.stage)) {
    out.handed_over = net::TensorKey{options_.plan.generation, routes.front().to.value, kind, step,
                                     static_cast<uint32_t>(microbatch)};
    out.on_tensor = options_.on_tensor;
    return out;
  }
  out.plane = options_.plane;
  for (const plans::Route& route : routes) {
    net::DataPlane::Rows part;
    part.key = {options_.plan.generation, route.to.value, kind, step,
                static_cast<uint32_t>(microbatch)};
    part.sender = from.parts.id.value;
    part.row_begin = static_cast<uint32_t>(route.rows.begin);
    part.row_count = static_cast<uint32_t>(route.rows.count);
    part.payload = std::span<const float>(*out.memory)
                       .subspan(static_cast<size_t>((route.rows.begin - from.rows.begin) *
                                                    options_.row_floats),
                                static_cast<size_t>(route.rows.count * options_.row_floats));
    part.owner = out.memory;
    const plans::WorkerId worker = plans::replica_of(options_.plan, route.to).worker;
    out.parts.emplace_back(options_.addresses.at(worker), std::move(part));
  }
  return out;
}

}  // namespace skein::actors
