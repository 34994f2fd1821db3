#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// Weights, gradients and moments of one stage, each in one flat buffer in the order of
/// `plans::range_parameters`; all float32. Where a device's products read another type, a rounded
/// copy of the weights is kept beside them: the optimizer writes both, and what the host has
/// written is rounded by `refresh`. A tied gradient is a block at the start (embedding) or at the
/// end (the head's copy), so that both all-reduces work on one span. Where sums are exact,
/// gradients are those of one micro-batch until all of them are in the sums, and then the sums
/// rounded.
class ParameterStore {
 public:
  /// Allocates and draws the initial weights, which depend on seed, name and element only.
  static absl::StatusOr<ParameterStore> create(const StageModelOptions& options, Device& device);

  const std::vector<plans::ParameterSpec>& specs() const { return specs_; }
  float* weight(size_t parameter) const { return weights_.floats() + offsets_[parameter]; }
  /// The weight as products read it.
  ConstNumbers operand(size_t parameter) const;
  float* gradient(size_t parameter) const { return gradients_.floats() + offsets_[parameter]; }
  int64_t bytes() const;
  /// Floats before a parameter; of the number of parameters: all.
  int64_t offset(size_t parameter) const { return offsets_[parameter]; }
  /// Null if products read the weights themselves.
  Numbers rounded(size_t parameter) const;

  /// Host memory: the gradients themselves, or their sums where these are exact, or where
  /// `show_gradients` puts them.
  std::span<float> stage_gradients() const;
  std::span<float> tied_gradients() const;
  /// The same in the device's memory.
  std::span<float> device_stage_gradients() const;
  std::span<float> device_tied_gradients() const;
  /// Copies the gradients of `parts` of parameters [begin, end) to where the host sees them, and
  /// those of all parameters back. Nothing to do on a device whose memory the host sees.
  void show_gradients(Ops& ops, size_t begin, size_t end, const GradientParts& parts) const;
  void take_gradients(Ops& ops, const GradientParts& parts) const;

  /// As in `StageModel`.
  void copy_tied_gradient(Ops& ops, std::span<float> out) const;
  void add_tied_gradient(Ops& ops, std::span<const float> values) const;
  void copy_tied_weights(Ops& ops, std::span<float> out) const;
  void take_tied_weights(Ops& ops, std::span<const float> values);

  /// Where sums are exact: floats of memory of a value in the spans above are two.
  bool has_exact_sums() const { return exact_limit_ > 0; }
  int64_t floats_per_gradient() const { return has_exact_sums() ? 2 : 1; }
  /// Adds the gradients to their sums and zeroes them.
  void move_to_sums(Ops& ops) const;
  /// Makes the sums the gradients: all but those of a tied embedding's copy, which others have not
  /// given yet; and the latter.
  void round_sums(Ops& ops) const;
  void round_tied_copy(Ops& ops) const;

  /// Rounds the weights if the host has written them since.
  void refresh(Ops& ops);
  void zero_gradients(Ops& ops) const;
  void add_norm_squared(Ops& ops, double* result) const;
  void update(Ops& ops, const plans::OptimizerSpec& optimizer, const UpdateOptions& options) const;

  /// The state of one parameter. InvalidArgument if the span has not its size.
  absl::Status read(Device& device, size_t parameter, StateKind kind, std::span<float> to) const;
  absl::Status write(Device& device, size_t parameter, StateKind kind, std::span<const float> from);

 private:
  absl::Status draw_weights(uint64_t seed, Device& device);
  absl::StatusOr<float*> state(size_t parameter, StateKind kind, size_t floats) const;
  /// Allocates them when they are first wanted, which is never where devices add up among
  /// themselves. Any thread may call.
  float* visible_gradients() const;
  /// In floats, from the first parameter on.
  struct Range {
    int64_t begin = 0, end = 0;
    size_t size() const { return static_cast<size_t>(end - begin); }
  };
  Range stage_range() const;
  Range tied_range() const { return {tied_begin_, tied_end_}; }
  /// What is added up over replicas.
  const Buffer& summed() const { return has_exact_sums() ? sums_ : gradients_; }
  double* sums() const { return static_cast<double*>(sums_.data()); }
  std::span<float> span_of(float* summed, const Range& range) const;
  void round(Ops& ops, const Range& range) const;
  std::vector<Range> ranges_of(const GradientParts& parts) const;
  void check_tied(size_t floats) const;

  std::vector<plans::ParameterSpec> specs_;
  std::vector<int64_t> offsets_;  // One more than there are parameters.
  int64_t tied_begin_ = 0;        // The tied block in floats; empty if both ends are equal.
  int64_t tied_end_ = 0;
  bool has_tied_copy_ = false;  // The block is the head's.
  Buffer weights_, gradients_, moments1_, moments2_;
  Buffer sums_;             // Exact ones, of the gradients; empty without.
  double exact_limit_ = 0;  // The largest gradient of a micro-batch; 0: sums are not exact.
  NumberType operands_ = NumberType::kFloat32;
  Buffer rounded_;  // Has the type `operands_`, unless that is the weights' own.
  bool is_rounded_ = false;
  /// Gradients where the host sees them, of a device whose memory it does not; empty until wanted.
  struct HostGradients {
    std::mutex mutex;
    Buffer memory;
  };
  std::unique_ptr<HostGradients> host_gradients_;  // Null: the host sees the device's.
  Device* device_ = nullptr;
};

}  // namespace skein::gpu
