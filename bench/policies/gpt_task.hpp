#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/policies/task.hpp"
#include "gpu/device.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/model/stage_model.hpp"

namespace skein::bench {

/// A small GPT over bytes of a text, in one stage: the product's model on one host thread. A sample
/// is a window of the text; every tenth window is held out.
class GptTask final : public Task {
 public:
  /// `rows`: samples of a step of a pipeline replica.
  static absl::StatusOr<std::unique_ptr<GptTask>> create(const std::string& text_path,
                                                         uint64_t rows);

  std::string description() const override;
  uint32_t stage_count() const override { return 1; }
  std::vector<float> initial_weights(uint32_t stage, uint64_t seed) const override;
  std::vector<size_t> tensor_floats(uint32_t stage) const override;
  std::vector<uint32_t> skewed_order() const override;
  std::vector<float> forward(uint32_t stage, std::span<const float> weights,
                             std::span<const uint32_t> samples,
                             std::span<const float> input) override;
  std::vector<float> backward(uint32_t stage, std::span<const float> weights,
                              std::span<const uint32_t> samples, std::span<const float> input,
                              std::span<const float> output_gradient,
                              std::span<float> gradient) override;
  Score evaluate(const std::vector<std::vector<float>>& weights) override;

 private:
  GptTask(std::string text_path, std::vector<uint8_t> text, uint64_t rows);
  gpu::StageModelOptions model_options(uint64_t seed) const;
  void set_weights(std::span<const float> weights);
  void fill(std::span<const uint32_t> windows);

  std::string text_path_;
  std::vector<uint8_t> text_;
  uint64_t rows_;
  std::vector<uint32_t> training_, held_out_;  // Windows, ascending.
  std::unique_ptr<gpu::Device> device_;        // Only for memory: the work is done here.
  gpu::ThreadPool pool_{1};
  gpu::HostOps ops_{pool_};
  std::unique_ptr<gpu::StageModel> model_;
  std::vector<int32_t> tokens_, targets_;  // [rows, T]
};

}  // namespace skein::bench
