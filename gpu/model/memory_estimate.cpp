#include "gpu/model/memory_estimate.hpp"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace skein::gpu {

absl::Status with_estimate(const absl::Status& why, const StageModelOptions& options) {
  if (!absl::IsResourceExhausted(why)) return why;
  int64_t parameters = 0;
  for (const auto& spec : plans::range_parameters(options.model, options.layers)) {
    parameters += plans::element_count(spec);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      std::string(why.message()), "; the stage of layers ", options.layers.begin, "..",
      options.layers.end, " needs ", (4 * parameters * static_cast<int64_t>(sizeof(float))) >> 20,
      " MiB for weights, gradients and moments, and the stashes of ", options.stash_count,
      " micro-batches of ", options.rows, " x ", options.seq_len, " tokens"));
}

}  // namespace skein::gpu
