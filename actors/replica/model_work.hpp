#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/fail_point.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "net/data/tensor_inbox.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

// What a program's commands are as work of a device. The work holds all that it needs: whoever
// made it may be gone when it runs.

/// Everything a micro-batch's forward needs.
struct ForwardWork {
  std::shared_ptr<const gpu::TokenData> data;
  uint64_t first_sample = 0;  // The first row's; in the validation data if it validates.
  /// Rows from this sample on are padding, and nothing is learnt from them: a claim may be smaller
  /// than the rows that a pipeline replica has for it.
  uint64_t end_sample = UINT64_MAX;
  int64_t seq_len = 0;
  net::TensorHandle activations;  // Null: the stage reads tokens.
  net::TensorHandle output;       // Null: nobody takes it.
  /// What is in their memory, which is the device's if it is no float32.
  gpu::NumberType activations_type = gpu::NumberType::kFloat32;
  gpu::NumberType output_type = gpu::NumberType::kFloat32;
  /// The weights of an embedding that is tied to the head, in the last stage and in the first one;
  /// null: nothing comes along, or goes.
  net::TensorHandle tied_in;
  net::TensorHandle tied_out;
};
/// `sample_count` is that of the whole step, over which the loss is averaged.
gpu::Work forward_work(const plans::RunAction& run, const StageReplica& replica,
                       ForwardWork forward, uint64_t sample_count);
/// Rows that are all padding are not evaluated: their output is zeros.
gpu::Work validation_work(const plans::RunValidation& run, const StageReplica& replica,
                          ForwardWork forward);

struct BackwardWork {
  net::TensorHandle gradient;  // Null: it comes from the loss, or the part has none.
  net::TensorHandle output;    // Null: nobody takes it.
  gpu::NumberType gradient_type = gpu::NumberType::kFloat32;  // As above.
  gpu::NumberType output_type = gpu::NumberType::kFloat32;
  gpu::GradientParts host_parts;  // What crosses by way of the host.
  /// The gradient of a tied embedding's other use, in the first stage, and of that use, in the last
  /// one; null as above.
  net::TensorHandle tied_in;
  net::TensorHandle tied_out;
};
gpu::Work backward_work(const plans::RunAction& run, const plans::ModelSpec& model,
                        const StageReplica& replica, BackwardWork backward);

/// Shows a stage's gradients to what adds them up, or computes their norm where nothing does.
/// `head`: the last stage's model, if it is here beside the first one and has the embedding's other
/// use, or null. That use's gradient is added first.
gpu::Work share_work(const StageReplica& replica, const gpu::GradientParts& host_parts,
                     std::shared_ptr<gpu::StageModel> head);
/// Zeroes gradients and losses; `sample_count` as in `forward_work`.
gpu::Work begin_work(std::vector<std::shared_ptr<gpu::StageModel>> models, uint64_t sample_count,
                     int64_t seq_len);
/// `head` as above: it is given the gradient that all uses have, so that both copies stay equal.
gpu::Work norm_work(const StageReplica& replica, std::shared_ptr<gpu::StageModel> head);

/// A stage to be updated, and what is added to its weights afterwards.
struct StageUpdate {
  std::shared_ptr<gpu::StageModel> model;
  double block_count = 0;
  std::shared_ptr<const std::vector<float>> addend;  // From averages; null: nothing.
  std::shared_ptr<const double> norm_squared;        // The stage's own gradient.
  double clip_share = 1;                             // Where it clips by that: `plans::clip_share`.
};
gpu::Work update_work(const plans::RunUpdate& run, const plans::JobSpec& job,
                      std::vector<StageUpdate> stages, FailPointHandle fail_point);

}  // namespace skein::actors
