#include "plans/planner/memory_cut.hpp"

#include <algorithm>
#include <limits>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// Bytes of the first layers: [L + 1].
std::vector<int64_t> byte_sums(const LayerRoom& room) {
  std::vector<int64_t> sums = {0};
  for (const int64_t bytes : room.layer_bytes) sums.push_back(sums.back() + bytes);
  return sums;
}

/// What the device with all layers does not need.
int64_t shared_bytes(const LayerRoom& room, size_t begin, size_t end) {
  return begin == 0 && end == room.layer_bytes.size() ? room.shared_bytes : 0;
}

/// How many bytes layers that have `bytes` lack on the device.
int64_t lacking_bytes(const LayerRoom& room, int64_t bytes) {
  if (room.free_bytes == 0) return 0;
  return std::max<int64_t>(room.fixed_bytes + bytes - room.free_bytes, 0);
}

/// As many layers for each as fit, and what is left for the last one.
MemoryCut fill_in_order(std::span<const LayerRoom> rooms) {
  const auto layers = static_cast<int64_t>(rooms.front().layer_bytes.size());
  MemoryCut cut;
  int64_t begin = 0;
  for (const LayerRoom& room : rooms) {
    const bool is_last = &room == &rooms.back();
    int64_t end = begin, bytes = 0;
    for (; end < layers; ++end) {
      const int64_t next = bytes + room.layer_bytes[static_cast<size_t>(end)];
      if (!is_last && lacking_bytes(room, next) > 0) break;
      bytes = next;
    }
    cut.ranges.push_back({begin, end});
    bytes -= shared_bytes(room, static_cast<size_t>(begin), static_cast<size_t>(end));
    if (is_last && end > begin) cut.missing_bytes = lacking_bytes(room, bytes);
    begin = end;
  }
  return cut;
}

}  // namespace

MemoryCut cut_by_memory(std::span<const LayerRoom> rooms) {
  SKEIN_CHECK(!rooms.empty()) << "no devices";
  const size_t devices = rooms.size(), layers = rooms.front().layer_bytes.size();
  // best[p][l]: the sum of squares when the first p devices have the first l layers.
  std::vector<std::vector<double>> best(devices + 1, std::vector<double>(layers + 1, kImpossible));
  std::vector<std::vector<size_t>> begins(devices + 1, std::vector<size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= devices; ++p) {
    const LayerRoom& room = rooms[p - 1];
    SKEIN_CHECK(room.layer_bytes.size() == layers) << "devices have different layers";
    const std::vector<int64_t> sums = byte_sums(room);
    for (size_t end = 0; end <= layers; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const int64_t bytes = sums[end] - sums[begin] - shared_bytes(room, begin, end);
        if (begin < end && lacking_bytes(room, bytes) > 0) continue;
        const double square = static_cast<double>(bytes) * static_cast<double>(bytes);
        const double sum = best[p - 1][begin] + square;
        if (sum >= best[p][end]) continue;  // On a tie the earlier cut stays.
        best[p][end] = sum;
        begins[p][end] = begin;
      }
    }
  }
  if (best[devices][layers] == kImpossible) return fill_in_order(rooms);
  MemoryCut cut;
  cut.ranges.resize(devices);
  size_t end = layers;
  for (size_t p = devices; p > 0; --p) {
    const size_t begin = begins[p][end];
    cut.ranges[p - 1] = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
    end = begin;
  }
  return cut;
}

}  // namespace skein::plans
