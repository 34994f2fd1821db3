#include "net/reduce/adasum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/reduce/pieces.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

/// The part of each tensor that lies in `range`, with the tensor's number.
template <class Visit>
void for_each_tensor(const FloatRange& range, std::span<const size_t> tensor_floats, Visit visit) {
  size_t begin = 0;
  for (size_t tensor = 0; tensor < tensor_floats.size() && begin < range.end; ++tensor) {
    const size_t end = begin + tensor_floats[tensor];
    const FloatRange part = {std::max(begin, range.begin), std::min(end, range.end)};
    if (part.begin < part.end) visit(tensor, part);
    begin = end;
  }
}

/// One call on one rank.
class Reduction {
 public:
  Reduction(std::span<float> values, std::span<const size_t> tensor_floats)
      : values_(values),
        tensor_floats_(tensor_floats),
        received_((values.size() + 1) / 2),
        dots_(tensor_floats.size()),
        dots_received_(tensor_floats.size()) {}

  /// Halves `range` between this rank and the one `level` away, and combines what both have of the
  /// half that this rank keeps. The 2 * level ranks of the block hold one vector each side, in
  /// pieces; their dot products are those of all pieces.
  absl::Status halve(Exchange& exchange, uint32_t level, FloatRange& range) {
    const uint32_t partner = exchange.rank() ^ level;
    const bool is_left = (exchange.rank() & level) == 0;
    const size_t middle = range.begin + (range.count() + 1) / 2;
    const FloatRange left = {range.begin, middle};
    const FloatRange right = {middle, range.end};
    const FloatRange given = is_left ? right : left;
    range = is_left ? left : right;
    const std::span<float> other(received_.data(), range.count());
    SKEIN_RETURN_IF_ERROR(exchange.move({partner, std::as_bytes(part(given))},
                                        {partner, std::as_writable_bytes(other)}));
    measure(range, other, is_left);
    for (uint32_t distance = 1; distance <= level; distance *= 2) {
      SKEIN_RETURN_IF_ERROR(add_dots_of(exchange, exchange.rank() ^ distance));
    }
    for_each_tensor(range, tensor_floats_, [&](size_t tensor, const FloatRange& piece) {
      AdasumFactors factors = adasum_factors(dots_[tensor]);
      if (!is_left) std::swap(factors.a, factors.b);
      combine(factors, part(piece), other.subspan(piece.begin - range.begin, piece.count()));
    });
    return absl::OkStatus();
  }

  std::span<float> part(const FloatRange& range) {
    return values_.subspan(range.begin, range.count());
  }

 private:
  /// `a` is the vector of the left side on both sides.
  void measure(const FloatRange& range, std::span<const float> other, bool is_left) {
    std::fill(dots_.begin(), dots_.end(), AdasumDots());
    for_each_tensor(range, tensor_floats_, [&](size_t tensor, const FloatRange& piece) {
      const auto others = other.subspan(piece.begin - range.begin, piece.count());
      if (is_left) {
        add_dots(part(piece), others, dots_[tensor]);
      } else {
        add_dots(others, part(piece), dots_[tensor]);
      }
    });
  }

  /// Both add the same two numbers, so that all ranks of a block have the same bits at the end.
  absl::Status add_dots_of(Exchange& exchange, uint32_t peer) {
    SKEIN_RETURN_IF_ERROR(exchange.move({peer, std::as_bytes(std::span(dots_))},
                                        {peer, std::as_writable_bytes(std::span(dots_received_))}));
    for (size_t i = 0; i < dots_.size(); ++i) {
      dots_[i].ab += dots_received_[i].ab;
      dots_[i].aa += dots_received_[i].aa;
      dots_[i].bb += dots_received_[i].bb;
    }
    return absl::OkStatus();
  }

  std::span<float> values_;
  std::span<const size_t> tensor_floats_;
  std::vector<float> received_;
  std::vector<AdasumDots> dots_;  // [tensors]
  std::vector<AdasumDots> dots_received_;
};

/// The tree over 2^k ranks, down to pieces and back to the whole.
absl::Status reduce_tree(Exchange& exchange, Reduction& reduction, size_t floats) {
  std::vector<FloatRange> ranges = {{0, floats}};
  for (uint32_t level = 1; level < exchange.rank_count(); level *= 2) {
    FloatRange range = ranges.back();
    SKEIN_RETURN_IF_ERROR(reduction.halve(exchange, level, range));
    ranges.push_back(range);
  }
  for (uint32_t level = exchange.rank_count() / 2; level >= 1; level /= 2) {
    const FloatRange mine = ranges.back();
    ranges.pop_back();
    const FloatRange both = ranges.back();
    const FloatRange theirs = mine.begin == both.begin ? FloatRange{mine.end, both.end}
                                                       : FloatRange{both.begin, mine.begin};
    const uint32_t partner = exchange.rank() ^ level;
    SKEIN_RETURN_IF_ERROR(exchange.move({partner, std::as_bytes(reduction.part(mine))},
                                        {partner, std::as_writable_bytes(reduction.part(theirs))}));
  }
  return absl::OkStatus();
}

using Coefficients = std::vector<double>;

/// Dot product of two sums of vectors.
double dot(std::span<const double> gram, const Coefficients& a, const Coefficients& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) sum += a[i] * b[j] * gram[i * b.size() + j];
  }
  return sum;
}

Coefficients combined(std::span<const double> gram, const Coefficients& a, const Coefficients& b) {
  const AdasumFactors factors = adasum_factors({dot(gram, a, b), dot(gram, a, a), dot(gram, b, b)});
  Coefficients result(a.size());
  for (size_t i = 0; i < result.size(); ++i) result[i] = factors.a * a[i] + factors.b * b[i];
  return result;
}

/// An extra rank and its partner combine half of their vectors each; the partner gets both halves.
absl::Status fold(Exchange& pair, Reduction& reduction, size_t floats) {
  FloatRange mine = {0, floats};
  SKEIN_RETURN_IF_ERROR(reduction.halve(pair, 1, mine));
  if (pair.rank() == 1) return pair.move({0, std::as_bytes(reduction.part(mine))}, {});
  return pair.move({}, {1, std::as_writable_bytes(reduction.part({mine.end, floats}))});
}

}  // namespace

void add_dots(std::span<const float> a, std::span<const float> b, AdasumDots& dots) {
  constexpr size_t kLanes = 8;  // Sums apart, so that the loop can be vectorised.
  std::array<double, kLanes> ab{}, aa{}, bb{};
  const size_t whole = a.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = a[i + lane];
      const double y = b[i + lane];
      ab[lane] += x * y;
      aa[lane] += x * x;
      bb[lane] += y * y;
    }
  }
  for (size_t i = whole; i < a.size(); ++i) {
    ab[0] += double{a[i]} * b[i];
    aa[0] += double{a[i]} * a[i];
    bb[0] += double{b[i]} * b[i];
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    dots.ab += ab[lane];
    dots.aa += aa[lane];
    dots.bb += bb[lane];
  }
}

AdasumFactors adasum_factors(const AdasumDots& dots) {
  // As Horovod's: below it, the quotient would lose its digits.
  static const double norm_squared_min = std::sqrt(std::numeric_limits<double>::min());
  AdasumFactors factors;
  if (!(dots.aa < norm_squared_min)) factors.a = 1 - dots.ab / (2 * dots.aa);
  if (!(dots.bb < norm_squared_min)) factors.b = 1 - dots.ab / (2 * dots.bb);
  return factors;
}

std::vector<double> adasum_coefficients(std::span<const double> gram, size_t count) {
  std::vector<Coefficients> vectors(count, Coefficients(count));
  for (size_t i = 0; i < count; ++i) vectors[i][i] = 1;
  const size_t inner = std::bit_floor(count);
  for (size_t i = inner; i < count; ++i) {
    vectors[i - inner] = combined(gram, vectors[i - inner], vectors[i]);
  }
  for (size_t level = 1; level < inner; level *= 2) {
    for (size_t i = 0; i + level < inner; i += 2 * level) {
      vectors[i] = combined(gram, vectors[i], vectors[i + level]);
    }
  }
  return vectors[0];
}

void combine(const AdasumFactors& factors, std::span<float> own, std::span<const float> other) {
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = static_cast<float>(factors.a * own[i] + factors.b * other[i]);
  }
}

absl::Status adasum(Exchange& exchange, std::span<float> values,
                    std::span<const size_t> tensor_floats) {
  size_t floats = 0;
  for (size_t each : tensor_floats) floats += each;
  if (floats != values.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensors of ", floats, " floats in all do not tile a vector of ", values.size()));
  }
  const uint32_t rank = exchange.rank();
  const uint32_t inner = std::bit_floor(exchange.rank_count());
  const uint32_t extra = exchange.rank_count() - inner;
  Reduction reduction(values, tensor_floats);
  if (rank >= inner) {
    PartOfExchange pair(exchange, {rank - inner, rank}, 1);
    SKEIN_RETURN_IF_ERROR(fold(pair, reduction, floats));
    return exchange.move({}, {rank - inner, std::as_writable_bytes(values)});
  }
  if (rank < extra) {
    PartOfExchange pair(exchange, {rank, inner + rank}, 0);
    SKEIN_RETURN_IF_ERROR(fold(pair, reduction, floats));
  }
  std::vector<uint32_t> members(inner);
  for (uint32_t i = 0; i < inner; ++i) members[i] = i;
  PartOfExchange tree(exchange, std::move(members), rank);
  SKEIN_RETURN_IF_ERROR(reduce_tree(tree, reduction, floats));
  if (rank < extra) return exchange.move({inner + rank, std::as_bytes(values)}, {});
  return absl::OkStatus();
}

}  // namespace skein::net
