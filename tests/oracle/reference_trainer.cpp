// Trains a job in one process with neither actors, network nor schedule: what any layout of the
// runtime must agree with, and what PyTorch is compared with. Writes into the output folder:
//   initial/ and final/        run folders with a checkpoint before the first
//   and after the last step gradients.safetensors      of step 0, before
//   clipping batches.bin                int32 [steps, global batch, T + 1]
//   losses.json                mean loss of every step
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/config/job_file.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/job/sample_order.hpp"

namespace skein {
namespace {

class Reference {
 public:
  Reference(plans::JobSpec job, std::string folder)
      : job_(std::move(job)), folder_(std::move(folder)), device_(gpu::make_host_device(1)) {}

  absl::Status run() {
    SKEIN_ASSIGN_OR_RETURN(data_, gpu::TokenData::open({job_.data, job_.training.seq_len,
                                                        job_.model.vocab_size, job_.debug.seed}));
    gpu::StageModelOptions options;
    options.model = job_.model;
    options.layers = {0, plans::layer_count(job_.model)};
    options.optimizer = job_.optimizer;
    options.rows = job_.training.micro_batch_size;
    options.seq_len = job_.training.seq_len;
    options.recompute = job_.training.recompute;
    options.seed = job_.debug.seed;
    SKEIN_ASSIGN_OR_RETURN(model_, gpu::StageModel::create(options, *device_));
    SKEIN_RETURN_IF_ERROR(save("initial", 0));
    batches_.open(folder_ + "/batches.bin", std::ios::binary);
    for (int64_t step = 0; step < job_.training.steps; ++step) {
      SKEIN_RETURN_IF_ERROR(run_step(step));
    }
    std::ofstream(folder_ + "/losses.json") << nlohmann::json(losses_).dump() << "\n";
    return save("final", static_cast<uint64_t>(job_.training.steps));
  }

 private:
  absl::Status on_device(std::function<absl::Status(gpu::Ops&)> work) {
    return device_->run({gpu::WorkKind::kOther, std::move(work)});
  }

  absl::Status run_step(int64_t step) {
    const int64_t batch = job_.training.global_batch_size;
    const int64_t seq_len = job_.training.seq_len;
    double norm_squared = 0;
    SKEIN_RETURN_IF_ERROR(on_device([&](gpu::Ops& ops) -> absl::Status {
      SKEIN_RETURN_IF_ERROR(model_->start_step(
          ops, 1.0 / (static_cast<double>(batch) * static_cast<double>(seq_len))));
      for (int64_t m = 0; m < plans::microbatch_count(job_); ++m) {
        SKEIN_RETURN_IF_ERROR(run_microbatch(ops, step, m));
      }
      return model_->gradient_norm_squared(ops, &norm_squared);
    }));
    losses_.push_back(model_->loss_sum() / static_cast<double>(model_->loss_tokens()));
    if (step == 0) SKEIN_RETURN_IF_ERROR(save_gradients());
    return on_device([&](gpu::Ops& ops) {
      return model_->update(
          ops, {plans::learning_rate(job_, step),
                plans::clip_factor(std::sqrt(norm_squared), job_.training.max_norm), step});
    });
  }

  absl::Status run_microbatch(gpu::Ops& ops, int64_t step, int64_t m) {
    const int64_t rows = job_.training.micro_batch_size;
    const int64_t seq_len = job_.training.seq_len;
    std::vector<int32_t> tokens(static_cast<size_t>(rows * seq_len));
    std::vector<int32_t> targets(tokens.size());
    const uint64_t first =
        plans::first_sample(static_cast<uint64_t>(step),
                            static_cast<uint64_t>(job_.training.global_batch_size)) +
        static_cast<uint64_t>(m * rows);
    for (int64_t row = 0; row < rows; ++row) {
      const auto offset = static_cast<size_t>(row * seq_len);
      const std::span<int32_t> row_tokens(&tokens[offset], static_cast<size_t>(seq_len));
      const std::span<int32_t> row_targets(&targets[offset], static_cast<size_t>(seq_len));
      SKEIN_RETURN_IF_ERROR(
          data_->training_sample(first + static_cast<uint64_t>(row), row_tokens, row_targets));
      batches_.write(reinterpret_cast<const char*>(row_tokens.data()),
                     static_cast<std::streamsize>(row_tokens.size_bytes()));
      batches_.write(reinterpret_cast<const char*>(&row_targets.back()), sizeof(int32_t));
    }
    SKEIN_RETURN_IF_ERROR(model_->forward(ops, 0, {tokens, targets, {}}, {}));
    return model_->backward(ops, 0, {}, {});
  }

  /// Gradients lie one behind the other in the order of the parameters.
  absl::Status save_gradients() {
    std::vector<gpu::TensorToWrite> tensors;
    std::span<const float> rest = model_->stage_gradients();
    for (const auto& spec : model_->parameters()) {
      const auto count = static_cast<size_t>(plans::element_count(spec));
      tensors.push_back({spec.name, spec.shape, rest.first(count)});
      rest = rest.subspan(count);
    }
    return gpu::write_safetensors(folder_ + "/gradients.safetensors", std::move(tensors)).status();
  }

  absl::Status save(const std::string& name, uint64_t steps_done) {
    const auto& specs = model_->parameters();
    std::vector<std::vector<float>> memory;
    std::vector<gpu::SavedParameter> saved;
    memory.reserve(3 * specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      auto read = [&](gpu::StateKind kind) {
        memory.emplace_back(static_cast<size_t>(plans::element_count(specs[i])));
        SKEIN_CHECK(model_->read_state(i, kind, memory.back()).ok());
        return std::span<const float>(memory.back());
      };
      const auto weight = read(gpu::StateKind::kWeight);
      const auto first = read(gpu::StateKind::kMomentFirst);
      saved.push_back({specs[i], weight, first, read(gpu::StateKind::kMomentSecond)});
    }
    const std::string run = folder_ + "/" + name;
    SKEIN_ASSIGN_OR_RETURN(auto files,
                           gpu::write_shard(gpu::partial_checkpoint_path(run, steps_done, 0), 0, 1,
                                            job_.optimizer.name, saved));
    gpu::TrainerState state;
    state.steps_done = steps_done;
    state.samples_done = steps_done * static_cast<uint64_t>(job_.training.global_batch_size);
    state.seq_len = job_.training.seq_len;
    state.seed = job_.debug.seed;
    state.data_bytes = data_->bytes();
    state.data_digest = data_->digest();
    return gpu::complete_checkpoint(run, 0, job_.model, state, files, 0).status();
  }

  plans::JobSpec job_;
  std::string folder_;
  std::unique_ptr<gpu::Device> device_;
  std::unique_ptr<gpu::TokenData> data_;
  std::unique_ptr<gpu::StageModel> model_;
  std::vector<double> losses_;
  std::ofstream batches_;
};

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto overrides = skein::cli::take_overrides(words);
  if (!overrides.ok() || words.size() != 2) {
    std::cerr << "usage: reference_trainer JOB.toml FOLDER [--section.key "
                 "value ...]\n";
    return 2;
  }
  const auto job = skein::cli::load_job(words[0], *overrides);
  if (!job.ok()) {
    std::cerr << job.status() << "\n";
    return 2;
  }
  std::filesystem::create_directories(words[1]);
  const absl::Status status = skein::Reference(job->spec, words[1]).run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
