#include "plans/elastic/best_assignment.hpp"

#include <limits>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
constexpr size_t kNobody = std::numeric_limits<size_t>::max();

/// Costs are negated weights. Column C is the root that a new row hangs from; it is no column of
/// the matrix.
class Assignment {
 public:
  explicit Assignment(const std::vector<std::vector<int64_t>>& weights)
      : weights_(weights),
        columns_(weights.front().size()),
        row_price_(weights.size(), 0),
        column_price_(columns_ + 1, 0),
        row_of_(columns_ + 1, kNobody) {}

  /// Adds a row; rows that have a column may get another one.
  void add(size_t row) {
    row_of_[columns_] = row;
    std::vector<int64_t> gap(columns_, kFar);           // Cheapest known way to each column.
    std::vector<size_t> before(columns_ + 1, kNobody);  // The column before it on that way.
    std::vector<bool> reached(columns_ + 1, false);
    size_t column = columns_;
    while (row_of_[column] != kNobody) {
      reached[column] = true;
      column = step(column, gap, before, reached);
    }
    for (; column != columns_; column = before[column]) row_of_[column] = row_of_[before[column]];
  }

  std::vector<size_t> columns() const {
    std::vector<size_t> column_of(weights_.size(), kNobody);
    for (size_t c = 0; c < columns_; ++c) {
      if (row_of_[c] != kNobody) column_of[row_of_[c]] = c;
    }
    return column_of;
  }

 private:
  /// Improves the ways through `from`, changes the prices so that the nearest column costs nothing,
  /// and returns that column; on a tie the first one.
  size_t step(size_t from, std::vector<int64_t>& gap, std::vector<size_t>& before,
              const std::vector<bool>& reached) {
    const size_t row = row_of_[from];
    size_t nearest = kNobody;
    for (size_t c = 0; c < columns_; ++c) {
      if (reached[c]) continue;
      const int64_t cost = -weights_[row][c] - row_price_[row] - column_price_[c];
      if (cost < gap[c]) {
        gap[c] = cost;
        before[c] = from;
      }
      if (nearest == kNobody || gap[c] < gap[nearest]) nearest = c;
    }
    const int64_t delta = gap[nearest];
    for (size_t c = 0; c <= columns_; ++c) {
      if (reached[c]) {
        row_price_[row_of_[c]] += delta;
        column_price_[c] -= delta;
      } else if (c < columns_) {
        gap[c] -= delta;
      }
    }
    return nearest;
  }

  const std::vector<std::vector<int64_t>>& weights_;
  size_t columns_;
  std::vector<int64_t> row_price_;
  std::vector<int64_t> column_price_;
  std::vector<size_t> row_of_;  // [C + 1]
};

}  // namespace

std::vector<size_t> best_assignment(const std::vector<std::vector<int64_t>>& weights) {
  if (weights.empty()) return {};
  SKEIN_CHECK(weights.size() <= weights.front().size())
      << weights.size() << " rows, " << weights.front().size() << " columns";
  Assignment assignment(weights);
  for (size_t row = 0; row < weights.size(); ++row) assignment.add(row);
  return assignment.columns();
}

}  // namespace skein::plans
