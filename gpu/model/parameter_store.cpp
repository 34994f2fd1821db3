#include "gpu/model/parameter_store.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

void draw(const plans::ParameterSpec& spec, uint64_t seed, std::span<float> values) {
  const uint64_t stream = plans::random_stream(spec.name.data(), spec.name.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<float>(spec.init_std > 0 ? spec.init_std * plans::random_normal(seed, stream, i)
                                             : spec.init_value);
  }
}

}  // namespace

absl::StatusOr<ParameterStore> ParameterStore::create(const StageModelOptions& options,
                                                      Device& device) {
  ParameterStore store;
  store.specs_ = plans::range_parameters(options.model, options.layers);
  int64_t total = 0;
  for (const plans::ParameterSpec& spec : store.specs_) {
    store.offsets_.push_back(total);
    total += plans::element_count(spec);
  }
  store.offsets_.push_back(total);
  const bool has_first = options.layers.begin == 0;
  const bool has_last = options.layers.end == plans::layer_count(options.model);
  if (options.model.tied_head && has_first != has_last) {
    const size_t count = store.specs_.size();
    store.has_tied_copy_ = has_last;
    store.tied_begin_ = has_first ? 0 : store.offsets_[count - 1];
    store.tied_end_ = has_first ? store.offsets_[1] : total;
  }
  const int64_t bytes = total * static_cast<int64_t>(sizeof(float));
  SKEIN_ASSIGN_OR_RETURN(store.weights_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.gradients_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.moments1_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.moments2_, device.allocate(bytes));
  if (options.exact_summands > 0) {
    store.exact_limit_ = kExactMax / static_cast<double>(options.exact_summands);
    SKEIN_ASSIGN_OR_RETURN(store.sums_, device.allocate(2 * bytes));
  }
  store.operands_ = device.info().activations;
  if (store.operands_ != NumberType::kFloat32) {
    SKEIN_ASSIGN_OR_RETURN(store.rounded_, device.allocate(total * bytes_of(store.operands_)));
  }
  if (!device.info().is_host_memory) {
    store.host_gradients_ = std::make_unique<HostGradients>();
    store.device_ = &device;
  }
  if (device.info().computes) SKEIN_RETURN_IF_ERROR(store.draw_weights(options.seed, device));
  return store;
}

absl::Status ParameterStore::draw_weights(uint64_t seed, Device& device) {
  std::vector<float> values;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const auto count = static_cast<size_t>(plans::element_count(specs_[i]));
    if (device.info().is_host_memory) {
      draw(specs_[i], seed, {weight(i), count});
      continue;
    }
    values.resize(count);
    draw(specs_[i], seed, values);
    SKEIN_RETURN_IF_ERROR(device.upload(values, weight(i)));
  }
  return absl::OkStatus();
}

int64_t ParameterStore::bytes() const {
  return 4 * weights_.bytes() + rounded_.bytes() + sums_.bytes();
}

Numbers ParameterStore::rounded(size_t parameter) const {
  if (rounded_.data() == nullptr) return nullptr;
  return rounded_.numbers(operands_) + offsets_[parameter];
}

ConstNumbers ParameterStore::operand(size_t parameter) const {
  return rounded_.data() == nullptr ? ConstNumbers(weight(parameter)) : rounded(parameter);
}

void ParameterStore::refresh(Ops& ops) {
  if (rounded_.data() == nullptr || is_rounded_) return;
  ops.copy(weights_.floats(), rounded_.numbers(operands_), offsets_.back());
  is_rounded_ = true;
}

std::span<float> ParameterStore::span_of(float* summed, const Range& range) const {
  const auto floats = static_cast<size_t>(floats_per_gradient());
  return {summed + floats_per_gradient() * range.begin, floats * range.size()};
}

std::span<float> ParameterStore::tied_gradients() const {
  return span_of(visible_gradients(), tied_range());
}

std::span<float> ParameterStore::stage_gradients() const {
  return span_of(visible_gradients(), stage_range());
}

std::span<float> ParameterStore::device_tied_gradients() const {
  return span_of(summed().floats(), tied_range());
}

std::span<float> ParameterStore::device_stage_gradients() const {
  return span_of(summed().floats(), stage_range());
}

ParameterStore::Range ParameterStore::stage_range() const {
  if (tied_begin_ == 0) return {tied_end_, offsets_.back()};
  return {0, tied_begin_};
}

std::vector<ParameterStore::Range> ParameterStore::ranges_of(const GradientParts& parts) const {
  std::vector<Range> ranges;
  if (parts.stage) ranges.push_back(stage_range());
  if (parts.tied) ranges.push_back(tied_range());
  return ranges;
}

float* ParameterStore::visible_gradients() const {
  if (!host_gradients_) return summed().floats();
  const std::lock_guard lock(host_gradients_->mutex);
  Buffer& memory = host_gradients_->memory;
  if (memory.data() == nullptr) memory = allocate_visible(*device_, summed().bytes());
  return memory.floats();
}

void ParameterStore::show_gradients(Ops& ops, size_t begin, size_t end,
                                    const GradientParts& parts) const {
  if (!host_gradients_) return;
  for (Range range : ranges_of(parts)) {
    range.begin = std::max(range.begin, offsets_[begin]);
    range.end = std::min(range.end, offsets_[end]);
    if (range.begin >= range.end) continue;
    ops.copy_out(span_of(summed().floats(), range).data(), span_of(visible_gradients(), range));
  }
}

void ParameterStore::take_gradients(Ops& ops, const GradientParts& parts) const {
  if (!host_gradients_) return;
  for (const Range& range : ranges_of(parts)) {
    if (range.begin == range.end) continue;
    ops.copy_in(span_of(visible_gradients(), range), span_of(summed().floats(), range).data());
  }
}

void ParameterStore::move_to_sums(Ops& ops) const {
  if (!has_exact_sums()) return;
  ops.move_to_sums({gradients_.floats(), sums(), offsets_.back(), exact_limit_});
}

void ParameterStore::round(Ops& ops, const Range& range) const {
  if (!has_exact_sums() || range.begin == range.end) return;
  ops.round_sums(sums() + range.begin, gradients_.floats() + range.begin, range.end - range.begin);
}

void ParameterStore::round_sums(Ops& ops) const {
  round(ops, has_tied_copy_ ? stage_range() : Range{0, offsets_.back()});
}

void ParameterStore::round_tied_copy(Ops& ops) const {
  if (has_tied_copy_) round(ops, tied_range());
}

void ParameterStore::check_tied(size_t floats) const {
  SKEIN_CHECK(static_cast<int64_t>(floats) == tied_end_ - tied_begin_)
      << floats << " floats for a tied embedding of " << tied_end_ - tied_begin_;
}

void ParameterStore::copy_tied_gradient(Ops& ops, std::span<float> out) const {
  SKEIN_CHECK(!has_exact_sums()) << "a gradient that travels is no exact sum";
  check_tied(out.size());
  ops.copy_out(gradients_.floats() + tied_begin_, out);
}

void ParameterStore::add_tied_gradient(Ops& ops, std::span<const float> values) const {
  SKEIN_CHECK(!has_exact_sums()) << "a gradient that travels is no exact sum";
  check_tied(values.size());
  const float* from = values.data();
  if (host_gradients_) {
    // The device reads that memory, too; nothing else is in it where no group adds up gradients.
    std::copy(values.begin(), values.end(), visible_gradients() + tied_begin_);
    from = visible_gradients() + tied_begin_;
  }
  float* own = gradients_.floats() + tied_begin_;
  ops.add(own, from, own, tied_end_ - tied_begin_);
}

void ParameterStore::copy_tied_weights(Ops& ops, std::span<float> out) const {
  check_tied(out.size());
  ops.copy_out(weights_.floats() + tied_begin_, out);
}

void ParameterStore::take_tied_weights(Ops& ops, std::span<const float> values) {
  check_tied(values.size());
  ops.copy_in(values, weights_.floats() + tied_begin_);
  is_rounded_ = false;
}

void ParameterStore::zero_gradients(Ops& ops) const {
  ops.zero(gradients_.floats(), offsets_.back());
  if (has_exact_sums()) ops.zero(sums_.floats(), floats_per_gradient() * offsets_.back());
}

void ParameterStore::add_norm_squared(Ops& ops, double* result) const {
  std::vector<Ops::Values> all;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].tied_copy) continue;  // Counted where the embedding is.
    all.push_back({gradient(i), offsets_[i + 1] - offsets_[i]});
  }
  ops.add_sums_of_squares(all, result);
}

void ParameterStore::update(Ops& ops, const plans::OptimizerSpec& optimizer,
                            const UpdateOptions& options) const {
  if (optimizer.name == "sgd") {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const double decay = specs_[i].decays ? optimizer.weight_decay : 0;
      ops.sgd({static_cast<float>(options.lr), static_cast<float>(optimizer.momentum),
               static_cast<float>(decay), static_cast<float>(options.gradient_factor)},
              {weight(i), gradient(i), moments1_.floats() + offsets_[i],
               offsets_[i + 1] - offsets_[i], rounded(i)});
    }
    return;
  }
  const double t = static_cast<double>(options.step) + 1;
  Ops::Adamw adamw;
  adamw.lr = static_cast<float>(options.lr);
  adamw.beta1 = static_cast<float>(optimizer.beta1);
  adamw.beta2 = static_cast<float>(optimizer.beta2);
  adamw.eps = static_cast<float>(optimizer.eps);
  adamw.decay = static_cast<float>(optimizer.weight_decay);
  adamw.correction1 = static_cast<float>(1 - std::pow(optimizer.beta1, t));
  adamw.correction2 = static_cast<float>(1 - std::pow(optimizer.beta2, t));
  adamw.gradient_factor = static_cast<float>(options.gradient_factor);
  std::vector<Ops::AdamwTensor> tensors;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const int64_t offset = offsets_[i];
    tensors.push_back({weight(i), gradient(i), moments1_.floats() + offset,
                       moments2_.floats() + offset, offsets_[i + 1] - offset, specs_[i].decays,
                       rounded(i)});
  }
  ops.adamw_all(adamw, tensors);
}

absl::StatusOr<float*> ParameterStore::state(size_t parameter, StateKind kind,
                                             size_t floats) const {
  if (parameter >= specs_.size() ||
      static_cast<int64_t>(floats) != plans::element_count(specs_[parameter])) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter, " does not have ", floats, " elements"));
  }
  const Buffer* buffer = &weights_;
  if (kind == StateKind::kMomentFirst) buffer = &moments1_;
  if (kind == StateKind::kMomentSecond) buffer = &moments2_;
  return buffer->floats() + offsets_[parameter];
}

absl::Status ParameterStore::read(Device& device, size_t parameter, StateKind kind,
                                  std::span<float> to) const {
  SKEIN_ASSIGN_OR_RETURN(const float* from, state(parameter, kind, to.size()));
  return device.download(from, to);
}

absl::Status ParameterStore::write(Device& device, size_t parameter, StateKind kind,
                                   std::span<const float> from) {
  SKEIN_ASSIGN_OR_RETURN(float* to, state(parameter, kind, from.size()));
  if (kind == StateKind::kWeight) is_rounded_ = false;
  return device.upload(from, to);
}

}  // namespace skein::gpu
