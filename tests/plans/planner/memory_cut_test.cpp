#include "plans/planner/memory_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

int64_t bytes_of_range(const LayerRoom& room, const LayerRange& range) {
  const auto layers = static_cast<int64_t>(room.layer_bytes.size());
  const int64_t shared = range.size() == layers ? room.shared_bytes : 0;
  return std::accumulate(room.layer_bytes.begin() + range.begin,
                         room.layer_bytes.begin() + range.end, -shared);
}

bool fits(const std::vector<LayerRoom>& rooms, const std::vector<LayerRange>& ranges) {
  for (size_t p = 0; p < rooms.size(); ++p) {
    if (ranges[p].size() == 0 || rooms[p].free_bytes == 0) continue;
    const int64_t bytes = rooms[p].fixed_bytes + bytes_of_range(rooms[p], ranges[p]);
    if (bytes > rooms[p].free_bytes) return false;
  }
  return true;
}

int64_t squares(const std::vector<LayerRoom>& rooms, const std::vector<LayerRange>& ranges) {
  int64_t sum = 0;
  for (size_t p = 0; p < rooms.size(); ++p) {
    const int64_t bytes = bytes_of_range(rooms[p], ranges[p]);
    sum += bytes * bytes;
  }
  return sum;
}

/// The least sum of squares of all cuts that fit; none if no cut does.
std::optional<int64_t> least_by_force(const std::vector<LayerRoom>& rooms) {
  const auto layers = static_cast<int64_t>(rooms.front().layer_bytes.size());
  std::optional<int64_t> least;
  std::vector<LayerRange> ranges;
  std::function<void(int64_t)> place = [&](int64_t begin) {
    const bool is_last = ranges.size() + 1 == rooms.size();
    for (int64_t end = is_last ? layers : begin; end <= layers; ++end) {
      ranges.push_back({begin, end});
      if (!is_last) {
        place(end);
      } else if (fits(rooms, ranges)) {
        least = std::min(least.value_or(INT64_MAX), squares(rooms, ranges));
      }
      ranges.pop_back();
    }
  };
  place(0);
  return least;
}

void expect_tiles(const std::vector<LayerRange>& ranges, int64_t layers) {
  int64_t next = 0;
  for (const LayerRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GE(range.end, range.begin);
    next = range.end;
  }
  EXPECT_EQ(next, layers);
}

TEST(CutByMemory, IsAsEvenAsMemoryAllowsOfAllCuts) {
  Rng rng(8, 1);
  int64_t without = 0;
  for (int round = 0; round < 500; ++round) {
    const size_t devices = 1 + rng.below(4), layers = 1 + rng.below(7);
    std::vector<LayerRoom> rooms(devices);
    for (LayerRoom& room : rooms) {
      room.fixed_bytes = static_cast<int64_t>(rng.below(4));
      room.free_bytes = static_cast<int64_t>(rng.below(30));  // 0: not known.
      for (size_t l = 0; l < layers; ++l) {
        room.layer_bytes.push_back(static_cast<int64_t>(rng.below(12)));
      }
      const int64_t sum =
          std::accumulate(room.layer_bytes.begin(), room.layer_bytes.end(), int64_t{0});
      room.shared_bytes = static_cast<int64_t>(rng.below(static_cast<uint64_t>(sum) + 1));
    }
    const MemoryCut cut = cut_by_memory(rooms);
    const std::optional<int64_t> least = least_by_force(rooms);
    expect_tiles(cut.ranges, static_cast<int64_t>(layers));
    EXPECT_EQ(cut.missing_bytes == 0, least.has_value());
    EXPECT_EQ(fits(rooms, cut.ranges), least.has_value());
    if (least) {
      EXPECT_EQ(squares(rooms, cut.ranges), *least);
    } else {
      ++without;
    }
  }
  EXPECT_GT(without, 20);
  EXPECT_LT(without, 480);
}

TEST(CutByMemory, SharesLayersOutEvenly) {
  const LayerRoom room = {0, 5, {1, 4, 4, 4, 4, 4, 4, 1}};
  const std::vector<LayerRoom> rooms(3, room);
  const std::vector<LayerRange> wanted = {{0, 3}, {3, 5}, {5, 8}};
  EXPECT_EQ(cut_by_memory(rooms).ranges, wanted);
}

TEST(CutByMemory, CountsWhatAllLayersShareOnce) {
  const LayerRoom room = {11, 1, {6, 3, 6}, 5};
  EXPECT_EQ(cut_by_memory(std::vector<LayerRoom>{room}).missing_bytes, 0);
  LayerRoom smaller = room;
  smaller.free_bytes = 8;
  EXPECT_EQ(cut_by_memory(std::vector<LayerRoom>{smaller}).missing_bytes, 3);
}

TEST(CutByMemory, LeavesOutADeviceThatIsFull) {
  const std::vector<LayerRoom> rooms = {{10, 1, {3, 3}}, {2, 1, {3, 3}}, {10, 1, {3, 3}}};
  const std::vector<LayerRange> wanted = {{0, 1}, {1, 1}, {1, 2}};
  EXPECT_EQ(cut_by_memory(rooms).ranges, wanted);
}

TEST(CutByMemory, SaysWhatIsMissingBehindThoseThatAreFull) {
  const std::vector<int64_t> layers = {3, 3, 3, 3, 3};
  const std::vector<LayerRoom> rooms = {{8, 1, layers}, {5, 2, layers}};
  const MemoryCut cut = cut_by_memory(rooms);
  const std::vector<LayerRange> wanted = {{0, 2}, {2, 5}};
  EXPECT_EQ(cut.ranges, wanted);
  EXPECT_EQ(cut.missing_bytes, 6);
}

}  // namespace
}  // namespace skein::plans
