#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::plans {

/// How the members of a group put their gradients together.
enum class ReducerKind {
  kSum,           // Weighted by samples: the gradient of the whole batch.
  kMean,          // Of the members' own mean gradients, whatever their shares of the batch.
  kAdasum,        // Maleki et al., MLSys'21, of the members' own mean gradients.
  kTopK,          // The sum of each member's largest values; the rest is sent later.
  kHiTopK,        // The same among hosts, dense within a host. Shi et al., MLSys'21.
  kFp16,          // The sum; values travel as IEEE binary16, scaled.
  kBf16,          // The sum; values travel as bfloat16.
  kHiSum,         // The sum, within each host first.
  kTopKAllToAll,  // As kTopK; each member adds up a shard. TopKA2A, ICPP'24.
};

/// "sum", "mean", "adasum", "topk", "hitopk", "fp16", "bf16", "hisum" or "topka2a".
/// InvalidArgument with the nearest name otherwise.
absl::StatusOr<ReducerKind> parse_reducer_kind(const std::string& name);
std::string name_of(ReducerKind kind);

}  // namespace skein::plans
