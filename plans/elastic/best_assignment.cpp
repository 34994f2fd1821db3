#include "plans/elastic/best_assignment.hpp"

#include <limits>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
constexpr size_t kNobody = std::numeric_limits<size_t>::max();

/// Costs are negated weights. Pipeline replica C is the root that a new row hangs from; it is no
/// pipeline replica of the matrix.
class Assignment {
 public:
  explicit Assignment(const std::vector<std::vector<int64_t>>& weights)
      : weights_(weights),
        pipelines_(weights.front().size()),
        row_price_(weights.size(), 0),
        pipeline_price_(pipelines_ + 1, 0),
        row_of_(pipelines_ + 1, kNobody) {}

  /// Adds a row; rows that have a pipeline replica may get another one.
  void add(size_t row) {
    row_of_[pipelines_] = row;
    std::vector<int64_t> gap(pipelines_, kFar);  // Cheapest known way to each pipeline replica.
    std::vector<size_t> before(pipelines_ + 1,
                               kNobody);  // The pipeline replica before it on that way.
    std::vector<bool> reached(pipelines_ + 1, false);
    size_t pipeline = pipelines_;
    while (row_of_[pipeline] != kNobody) {
      reached[pipeline] = true;
      pipeline = step(pipeline, gap, before, reached);
    }
    for (; pipeline != pipelines_; pipeline = before[pipeline])
      row_of_[pipeline] = row_of_[before[pipeline]];
  }

  std::vector<size_t> pipelines() const {
    std::vector<size_t> pipeline_of(weights_.size(), kNobody);
    for (size_t c = 0; c < pipelines_; ++c) {
      if (row_of_[c] != kNobody) pipeline_of[row_of_[c]] = c;
    }
    return pipeline_of;
  }

 private:
  /// Improves the ways through `from`, changes the prices so that the nearest pipeline replica
  /// costs nothing, and returns that pipeline replica; on a tie the first one.
  size_t step(size_t from, std::vector<int64_t>& gap, std::vector<size_t>& before,
              const std::vector<bool>& reached) {
    const size_t row = row_of_[from];
    size_t nearest = kNobody;
    for (size_t c = 0; c < pipelines_; ++c) {
      if (reached[c]) continue;
      const int64_t cost = -weights_[row][c] - row_price_[row] - pipeline_price_[c];
      if (cost < gap[c]) {
        gap[c] = cost;
        before[c] = from;
      }
      if (nearest == kNobody || gap[c] < gap[nearest]) nearest = c;
    }
    const int64_t delta = gap[nearest];
    for (size_t c = 0; c <= pipelines_; ++c) {
      if (reached[c]) {
        row_price_[row_of_[c]] += delta;
        pipeline_price_[c] -= delta;
      } else if (c < pipelines_) {
        gap[c] -= delta;
      }
    }
    return nearest;
  }

  const std::vector<std::vector<int64_t>>& weights_;
  size_t pipelines_;
  std::vector<int64_t> row_price_;
  std::vector<int64_t> pipeline_price_;
  std::vector<size_t> row_of_;  // [C + 1]
};

}  // namespace

std::vector<size_t> best_assignment(const std::vector<std::vector<int64_t>>& weights) {
  if (weights.empty()) return {};
  SKEIN_CHECK(weights.size() <= weights.front().size())
      << weights.size() << " rows, " << weights.front().size() << " pipeline replicas";
  Assignment assignment(weights);
  for (size_t row = 0; row < weights.size(); ++row) assignment.add(row);
  return assignment.pipelines();
}

}  // namespace skein::plans
