#pragma once

#include <cstdint>
#include <vector>

#include "plans/worker/pass_program.hpp"
#include "plans/worker/token_pass.hpp"

namespace skein::plans {

/// The worker's part of steps that are trained by tokens: each worker computes what it is granted.
class TokenProgram final : public PassProgram<TokenPass> {
 public:
  explicit TokenProgram(const ProgramOptions& options)
      : PassProgram(options,
                    TokenPass({options.stages, options.samples_per_step, options.first_step})) {}

  ProgramOutcome on_token(int32_t stage, const TokenOrder& order) override {
    if (is_finished()) return Dropped{DropReason::kUnexpected};
    return pass().on_token(stage, order);
  }
  bool moves_tokens() const override { return true; }
  std::vector<ReplicaId> input_holders(int32_t stage, int32_t token) const override {
    return pass().holders(stage, token);
  }
  uint64_t first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const override {
    return step * sample_count(step) + static_cast<uint64_t>(microbatch * rows.count + rows.begin);
  }
};

}  // namespace skein::plans
