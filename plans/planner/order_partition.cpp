#include "plans/planner/order_partition.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "plans/planner/device_orders.hpp"
#include "plans/planner/row_split.hpp"

namespace skein::plans {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Limits on the slowest stage, as multiples of what perfect balance would give.
constexpr double kLimits[] = {1.0001, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3,
                              1.4,    1.6,  1.9,  2.4, 3.2,  5.0, kNever};

/// A replica's share of a run and its device's memory; those that matter for the check of memory.
struct ReplicaRoom {
  int64_t rows = 0;
  int64_t memory_bytes = 0;
  auto operator<=>(const ReplicaRoom&) const = default;
};

/// Devices [begin, end) of the order as one stage.
struct Run {
  double slowness = kNever;  // Time of a stage, in multiples of that on one device of speed 1.
  FlowTimes::Duration ring;  // Per byte.
  std::vector<ReplicaRoom> rooms;
};

struct Cell {
  double total_us = kNever;
  int32_t next_block = -1;
  int32_t next_unit = -1;
  int32_t stages = 0;
  bool skips = false;  // The unit stays unused.
};

class Partitioner {
 public:
  Partitioner(CostModel& model, const std::vector<int32_t>& order,
              const PartitionQuestion& question)
      : model_(model), order_(order), question_(question) {
    const auto P = static_cast<int64_t>(order.size());
    const int64_t units = std::min(P, kPartitionUnits);
    std::vector<size_t> ends;
    for (int64_t u = 1; u <= units; ++u) ends.push_back(static_cast<size_t>(u * P / units));
    if (P > units) snap_to_hosts(model.cluster(), order, ends);
    unit_begin_.push_back(0);
    for (size_t end : ends) unit_begin_.push_back(static_cast<int64_t>(end));
    cut_blocks();
    price_runs();
  }

  /// The partition for one limit; empty cuts if there is none.
  CandidatePlan solve(double limit_us) {
    cells_.assign(static_cast<size_t>((blocks() + 1) * (units() + 1)), {});
    for (int32_t u = 0; u <= units(); ++u) cell(blocks(), u).total_us = 0;
    for (int32_t block = blocks() - 1; block >= 0; --block) {
      for (int32_t unit = units() - 1; unit >= 0; --unit) solve_cell(block, unit, limit_us);
    }
    return read();
  }

 private:
  int32_t units() const { return static_cast<int32_t>(unit_begin_.size()) - 1; }
  int32_t blocks() const { return static_cast<int32_t>(block_begin_.size()) - 1; }
  size_t index(int32_t begin, int32_t end) const {
    return static_cast<size_t>(begin * (units() + 1) + end);
  }
  Cell& cell(int32_t block, int32_t unit) {
    return cells_[static_cast<size_t>(block * (units() + 1) + unit)];
  }

  /// Layers by layer, or runs of layers of about the same time.
  void cut_blocks() {
    LayerSums& sums = model_.sums();
    const int64_t L = sums.layer_count();
    const double whole_us = sums.times({0, L}, question_.rows).total_us();
    block_begin_.push_back(0);
    for (int64_t layer = 1; layer < L; ++layer) {
      const double passed_us = sums.times({0, layer}, question_.rows).total_us();
      const double due_us = whole_us * static_cast<double>(block_begin_.size()) /
                            static_cast<double>(kPartitionBlocks);
      if (L <= kPartitionBlocks || passed_us >= due_us) block_begin_.push_back(layer);
    }
    block_begin_.push_back(L);
    for (int64_t begin : block_begin_) {
      LayerTimes times = sums.times({0, begin}, question_.rows);
      passed_us_.push_back(times.total_us() + (question_.recompute ? times.forward_us : 0));
    }
  }

  void price_runs() {
    runs_.resize(static_cast<size_t>((units() + 1) * (units() + 1)));
    const bool is_limited =
        std::any_of(model_.cluster().devices.begin(), model_.cluster().devices.end(),
                    [](const auto& device) { return device.memory_bytes > 0; });
    const double one_us = model_.sums().model_us(question_.rows);
    for (int32_t begin = 0; begin < units(); ++begin) {
      for (int32_t end = begin + 1; end <= units(); ++end) {
        const std::vector<int32_t> devices = devices_of(begin, end);
        if (static_cast<int64_t>(devices.size()) > question_.rows) break;
        Run& run = runs_[index(begin, end)];
        const std::vector<int64_t> rows = split_rows(model_, devices, question_.rows);
        std::set<ReplicaRoom> rooms;
        run.slowness = 0;
        for (size_t r = 0; r < devices.size(); ++r) {
          const double own_us = model_.sums().model_us(rows[r]) / model_.speed(devices[r]);
          run.slowness = std::max(run.slowness, one_us > 0 ? own_us / one_us : 0);
          const int64_t memory =
              model_.cluster().devices[static_cast<size_t>(devices[r])].memory_bytes;
          if (is_limited && memory > 0) rooms.insert({rows[r], memory});
        }
        run.rooms.assign(rooms.begin(), rooms.end());
        run.ring = model_.ring_cost(devices, 1.0);
      }
    }
    for (int32_t unit = 1; unit < units(); ++unit) {
      const auto at = static_cast<size_t>(unit_begin_[static_cast<size_t>(unit)]);
      paths_.push_back(model_.flows().path(order_[at - 1], order_[at]));
    }
  }

  std::vector<int32_t> devices_of(int32_t begin, int32_t end) const {
    return {order_.begin() + unit_begin_[static_cast<size_t>(begin)],
            order_.begin() + unit_begin_[static_cast<size_t>(end)]};
  }
  LayerRange layers_of(int32_t begin, int32_t end) const {
    return {block_begin_[static_cast<size_t>(begin)], block_begin_[static_cast<size_t>(end)]};
  }

  double stage_us(std::pair<int32_t, int32_t> blocks, const Run& run) const {
    return (passed_us_[static_cast<size_t>(blocks.second)] -
            passed_us_[static_cast<size_t>(blocks.first)]) *
           run.slowness;
  }

  void solve_cell(int32_t block, int32_t unit, double limit_us) {
    Cell best = cell(block, unit + 1);
    best.skips = true;
    for (int32_t end = unit + 1; end <= units(); ++end) {
      const Run& run = runs_[index(unit, end)];
      if (run.slowness == kNever) break;
      for (int32_t next = block + 1; next <= blocks(); ++next) {
        const Cell& rest = cell(next, end);
        const double own_us = stage_us({block, next}, run);
        if (own_us > limit_us) break;
        if (own_us + rest.total_us >= best.total_us) continue;
        const double transfer_us = next < blocks() ? crossing_us(next, end) : 0;
        if (transfer_us > limit_us) continue;
        const double total_us =
            own_us + 2 * transfer_us + tail_us(block, next, run, own_us) + rest.total_us;
        if (total_us >= best.total_us || !has_room({block, next}, run, rest.stages)) continue;
        best = {total_us, next, end, rest.stages + 1, false};
      }
    }
    cell(block, unit) = best;
  }

  /// The cut in front of a block between two units, at the speed of their neighbouring devices.
  double crossing_us(int32_t block, int32_t unit) const {
    const int64_t layer = block_begin_[static_cast<size_t>(block)];
    const LinkSpeed& path = paths_[static_cast<size_t>(unit - 1)];
    const auto bytes =
        static_cast<double>(cut_row_bytes(model_.request().profile, layer) * question_.rows);
    return bytes / path.bytes_per_second * 1e6 + path.latency_us;
  }

  /// The stage's all-reduce, or what a backward leaves of it.
  double tail_us(int32_t begin, int32_t end, const Run& run, double own_us) const {
    const double whole_us =
        model_.reduced_bytes(layers_of(begin, end)) * run.ring.bytes_us + run.ring.latency_us;
    if (!model_.request().simulation.bucketed_reduction) return whole_us;
    return std::max(0.0, whole_us - own_us / 2);
  }

  bool has_room(std::pair<int32_t, int32_t> blocks, const Run& run, int32_t stages_behind) const {
    if (run.rooms.empty()) return true;
    const LayerRange layers = layers_of(blocks.first, blocks.second);
    const LayerSums& sums = model_.sums();
    const int64_t count = model_.request().global_batch_rows / question_.rows;
    const int64_t stashes =
        question_.one_stash ? 1 : std::min<int64_t>(count, int64_t{stages_behind} + 1);
    const int64_t row_bytes = stashes * sums.stash_row_bytes(layers, question_.recompute) +
                              sums.extra_row_bytes(layers, question_.recompute);
    const int64_t state = sums.state_bytes(layers);
    return std::all_of(run.rooms.begin(), run.rooms.end(), [&](const ReplicaRoom& room) {
      return state + row_bytes * room.rows <= room.memory_bytes;
    });
  }

  CandidatePlan read() {
    CandidatePlan candidate;
    if (cell(0, 0).total_us == kNever) return candidate;
    candidate.microbatch_rows = question_.rows;
    candidate.recompute = question_.recompute;
    int32_t block = 0;
    int32_t unit = 0;
    while (block < blocks()) {
      while (cell(block, unit).skips) ++unit;
      const Cell& own = cell(block, unit);
      candidate.cuts.push_back(block_begin_[static_cast<size_t>(block)]);
      candidate.rank_of_stage.push_back(static_cast<int32_t>(candidate.ranks.size()));
      candidate.ranks.push_back(rank_of(model_, devices_of(unit, own.next_unit), question_.rows));
      block = own.next_block;
      unit = own.next_unit;
    }
    candidate.cuts.push_back(model_.sums().layer_count());
    return candidate;
  }

  CostModel& model_;
  const std::vector<int32_t>& order_;
  PartitionQuestion question_;
  std::vector<int64_t> unit_begin_;   // Into `order_`.
  std::vector<int64_t> block_begin_;  // Layers.
  std::vector<double> passed_us_;     // F + B of the layers in front of a block.
  std::vector<Run> runs_;             // By first and last unit.
  std::vector<LinkSpeed> paths_;      // Between units u - 1 and u, at [u - 1].
  std::vector<Cell> cells_;           // By block and unit.
};

}  // namespace

std::vector<CandidatePlan> partitions_of_order(CostModel& model, const std::vector<int32_t>& order,
                                               const PartitionQuestion& question) {
  Partitioner partitioner(model, order, question);
  // What perfect balance over all devices would give; slow devices may be better left out.
  double speeds = 0;
  for (int32_t device : order) speeds += model.speed(device);
  const double ideal_us =
      model.sums().model_us(question.rows) * (question.recompute ? 4.0 / 3.0 : 1.0) / speeds;
  std::vector<CandidatePlan> candidates;
  for (const double limit : kLimits) {
    CandidatePlan candidate = partitioner.solve(limit * ideal_us);
    if (candidate.cuts.empty()) continue;
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end()) {
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

}  // namespace skein::plans
