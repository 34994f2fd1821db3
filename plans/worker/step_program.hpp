#pragma once

#include <cstdint>

#include "plans/worker/pass_program.hpp"
#include "plans/worker/pipeline_pass.hpp"

namespace skein::plans {

/// The worker's part of synchronous steps: all replicas of the job do every step together, each by
/// its list of actions.
class StepProgram final : public PassProgram<PipelinePass> {
 public:
  explicit StepProgram(const ProgramOptions& options)
      : PassProgram(options, PipelinePass({options.actions, options.stages, options.first_step})),
        microbatch_rows_(options.microbatch_rows) {}

  /// A micro-batch goes to all replicas of a stage, each of which takes some rows of it.
  uint64_t first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const override {
    return step * sample_count(step) +
           static_cast<uint64_t>(microbatch * microbatch_rows_ + rows.begin);
  }

 private:
  const int64_t microbatch_rows_;
};

}  // namespace skein::plans
