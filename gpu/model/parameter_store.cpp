#include "gpu/model/parameter_store.hpp"

#include <cmath>

#include "absl/strings/str_cat.h"
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
    store.tied_begin_ = has_first ? 0 : store.offsets_[count - 1];
    store.tied_end_ = has_first ? store.offsets_[1] : total;
  }
  const int64_t bytes = total * static_cast<int64_t>(sizeof(float));
  SKEIN_ASSIGN_OR_RETURN(store.weights_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.gradients_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.moments1_, device.allocate(bytes));
  SKEIN_ASSIGN_OR_RETURN(store.moments2_, device.allocate(bytes));
  if (!device.info().computes) return store;
  for (size_t i = 0; i < store.specs_.size(); ++i) {
    draw(store.specs_[i], options.seed,
         {store.weight(i), static_cast<size_t>(plans::element_count(store.specs_[i]))});
  }
  return store;
}

int64_t ParameterStore::bytes() const { return 4 * weights_.bytes(); }

std::span<float> ParameterStore::tied_gradients() const {
  return {gradients_.floats() + tied_begin_, static_cast<size_t>(tied_end_ - tied_begin_)};
}

std::span<float> ParameterStore::stage_gradients() const {
  const bool tied_first = tied_begin_ == 0;
  const int64_t begin = tied_first ? tied_end_ : 0;
  const int64_t end = tied_first ? offsets_.back() : tied_begin_;
  return {gradients_.floats() + begin, static_cast<size_t>(end - begin)};
}

void ParameterStore::zero_gradients(Ops& ops) const {
  ops.zero(gradients_.floats(), offsets_.back());
}

void ParameterStore::add_norm_squared(Ops& ops, double* result) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].tied_copy) continue;  // Counted where the embedding is.
    ops.add_sum_of_squares(gradient(i), offsets_[i + 1] - offsets_[i], result);
  }
}

void ParameterStore::update(Ops& ops, const plans::OptimizerSpec& optimizer,
                            const UpdateOptions& options) const {
  const double t = static_cast<double>(options.step) + 1;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const int64_t count = offsets_[i + 1] - offsets_[i];
    const double decay = specs_[i].decays ? optimizer.weight_decay : 0;
    if (optimizer.name == "sgd") {
      ops.sgd({static_cast<float>(options.lr), static_cast<float>(optimizer.momentum),
               static_cast<float>(decay), static_cast<float>(options.gradient_factor)},
              weight(i), gradient(i), moments1_.floats() + offsets_[i], count);
      continue;
    }
    Ops::Adamw adamw;
    adamw.lr = static_cast<float>(options.lr);
    adamw.beta1 = static_cast<float>(optimizer.beta1);
    adamw.beta2 = static_cast<float>(optimizer.beta2);
    adamw.eps = static_cast<float>(optimizer.eps);
    adamw.decay = static_cast<float>(decay);
    adamw.correction1 = static_cast<float>(1 - std::pow(optimizer.beta1, t));
    adamw.correction2 = static_cast<float>(1 - std::pow(optimizer.beta2, t));
    adamw.gradient_factor = static_cast<float>(options.gradient_factor);
    ops.adamw(adamw, weight(i), gradient(i), moments1_.floats() + offsets_[i],
              moments2_.floats() + offsets_[i], count);
  }
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

}  // namespace skein::gpu
