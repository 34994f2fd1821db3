#include "plans/planner/row_split.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// When a replica would be done with one more row.
struct Turn {
  double done_us = 0;
  size_t replica = 0;
  bool operator>(const Turn& other) const {
    return done_us != other.done_us ? done_us > other.done_us : replica > other.replica;
  }
};

}  // namespace

std::vector<int64_t> split_rows(CostModel& model, const std::vector<int32_t>& devices,
                                int64_t rows) {
  const auto count = static_cast<int64_t>(devices.size());
  SKEIN_CHECK(count >= 1 && count <= rows) << count << " replicas of " << rows << " rows";
  if (count == 1) return {rows};
  double speeds = 0;
  for (int32_t device : devices) speeds += model.speed(device);
  // Where time is in proportion to rows, nobody's share rounded down is too much.
  const bool proportional = model.request().profile.rows.size() == 1;
  std::vector<int64_t> split;
  int64_t left = rows;
  for (int32_t device : devices) {
    const double share = static_cast<double>(rows) * model.speed(device) / speeds;
    split.push_back(proportional ? std::max<int64_t>(1, static_cast<int64_t>(share)) : 1);
    left -= split.back();
  }
  if (left < 0) {  // Slow devices were rounded up to a row, and the others have too many.
    split.assign(devices.size(), 1);
    left = rows - count;
  }
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  auto push = [&](size_t replica) {
    turns.push(
        {model.sums().model_us(split[replica] + 1) / model.speed(devices[replica]), replica});
  };
  for (size_t replica = 0; replica < devices.size(); ++replica) push(replica);
  for (; left > 0; --left) {
    const size_t replica = turns.top().replica;
    turns.pop();
    ++split[replica];
    push(replica);
  }
  return split;
}

CandidateRank rank_of(CostModel& model, std::vector<int32_t> devices, int64_t rows) {
  std::vector<int64_t> split = split_rows(model, devices, rows);
  return {std::move(devices), std::move(split)};
}

}  // namespace skein::plans
