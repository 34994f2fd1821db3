#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/reduce/exchange.hpp"
#include "net/reduce/top_k_all_to_all.hpp"
#include "net/reduce/top_k_sum.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::net {

struct ReducerOptions {
  plans::ReducerKind kind = plans::ReducerKind::kSum;
  double density = 0.01;        // kTopK, kHiTopK, kTopKAllToAll: share of the values that is sent.
  std::vector<uint32_t> hosts;  // kHiSum, kHiTopK: a number of the host of each rank.
  /// Share of the batch that this member's gradients are of, in (0, 1]: a member gives the gradient
  /// of the batch's mean loss, as far as it comes from its own samples.
  double own_share = 1;
  /// Sizes of the tensors that tile the whole vector; empty: it is one tensor.
  std::vector<size_t> tensor_floats;
  /// Where the vector begins of which calls reduce parts that are made of whole tensors; null:
  /// every call is given all of it. The memory itself is never touched.
  const float* whole = nullptr;
  /// kSum: the values are float64, each in the memory of two floats, which is aligned for that.
  bool is_float64 = false;
};

/// What stands in for the plain sum in one group. What top k leaves out of one call it adds to the
/// next one, so it is part of the state; it is lost with the object. One caller at a time.
class Reducer {
 public:
  explicit Reducer(ReducerOptions options);

  /// Puts the values of all ranks together, in place; the same bits on every rank.
  ///
  /// InvalidArgument   if the values are not of whole tensors (kAdasum), or as `TopKSum`,
  ///                   `TopKAllToAll`, `half_sum`. Other errors are those of the exchange.
  absl::Status reduce(Exchange& exchange, std::span<float> values);

 private:
  size_t first_float(std::span<const float> values) const;
  absl::Status reduce_by_adasum(Exchange& exchange, std::span<float> values) const;

  ReducerOptions options_;
  TopKSum top_k_;
  TopKAllToAll top_k_all_to_all_;
};

/// The sizes of those of the tensors that tile [first, first + floats). InvalidArgument if the
/// range cuts a tensor.
absl::StatusOr<std::vector<size_t>> tensors_of(std::span<const size_t> tensor_floats, size_t first,
                                               size_t floats);

}  // namespace skein::net
