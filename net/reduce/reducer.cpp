#include "net/reduce/reducer.hpp"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/reduce/adasum.hpp"
#include "net/reduce/half_sum.hpp"
#include "net/reduce/host_sum.hpp"
#include "net/reduce/ring.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

using plans::ReducerKind;

void multiply(double factor, std::span<float> values) {
  if (factor == 1) return;
  for (float& value : values) value = static_cast<float>(value * factor);
}

std::span<double> float64_of(std::span<float> memory) {
  SKEIN_CHECK(memory.size() % 2 == 0 &&
              reinterpret_cast<uintptr_t>(memory.data()) % alignof(double) == 0)
      << memory.size() << " floats hold no float64";
  return {reinterpret_cast<double*>(memory.data()), memory.size() / 2};
}

}  // namespace

Reducer::Reducer(ReducerOptions options)
    : options_(std::move(options)),
      top_k_(options_.density,
             options_.kind == ReducerKind::kHiTopK ? options_.hosts : std::vector<uint32_t>()),
      top_k_all_to_all_(options_.density) {
  SKEIN_CHECK(options_.own_share > 0 && options_.own_share <= 1) << options_.own_share;
  SKEIN_CHECK(!options_.is_float64 || options_.kind == ReducerKind::kSum)
      << plans::name_of(options_.kind) << " of float64";
}

absl::Status Reducer::reduce(Exchange& exchange, std::span<float> values) {
  switch (options_.kind) {
    case ReducerKind::kSum:
      return options_.is_float64 ? ring_sum_float64(exchange, float64_of(values))
                                 : ring_sum(exchange, values);
    case ReducerKind::kMean:
      multiply(1 / (options_.own_share * exchange.rank_count()), values);
      return ring_sum(exchange, values);
    case ReducerKind::kAdasum:
      return reduce_by_adasum(exchange, values);
    case ReducerKind::kTopK:
    case ReducerKind::kHiTopK:
      return top_k_.reduce(exchange, values, first_float(values));
    case ReducerKind::kTopKAllToAll:
      return top_k_all_to_all_.reduce(exchange, values, first_float(values));
    case ReducerKind::kHiSum:
      return host_sum(exchange, options_.hosts, values);
    case ReducerKind::kFp16:
      return half_sum(exchange, HalfFormat::kFp16, values);
    case ReducerKind::kBf16:
      return half_sum(exchange, HalfFormat::kBf16, values);
  }
  return absl::InternalError("a reducer of no kind");
}

absl::Status Reducer::reduce_by_adasum(Exchange& exchange, std::span<float> values) const {
  std::vector<size_t> tensors = {values.size()};
  if (!options_.tensor_floats.empty()) {
    SKEIN_ASSIGN_OR_RETURN(tensors,
                           tensors_of(options_.tensor_floats, first_float(values), values.size()));
  }
  multiply(1 / options_.own_share, values);
  return adasum(exchange, values, tensors);
}

size_t Reducer::first_float(std::span<const float> values) const {
  return options_.whole == nullptr ? 0 : static_cast<size_t>(values.data() - options_.whole);
}

absl::StatusOr<std::vector<size_t>> tensors_of(std::span<const size_t> tensor_floats, size_t first,
                                               size_t floats) {
  std::vector<size_t> result;
  size_t begin = 0;
  size_t found = 0;
  for (size_t each : tensor_floats) {
    const size_t end = begin + each;
    if (begin >= first && end <= first + floats) {
      result.push_back(each);
      found += each;
    }
    begin = end;
  }
  if (found == floats) return result;
  return absl::InvalidArgumentError(absl::StrCat("floats ", first, " to ", first + floats, " of ",
                                                 begin, " are not made of whole tensors"));
}

}  // namespace skein::net
