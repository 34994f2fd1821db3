#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::plans {

/// A binary heap of small numbers (ids) ordered by a key that can change; on a tie the smaller id
/// comes first. Not thread-safe. Every call costs O(log n).
class KeyedHeap {
 public:
  bool empty() const { return entries_.empty(); }
  int32_t top() const { return entries_.front().id; }
  double top_key() const { return entries_.front().key; }

  /// Adds `id` or changes its key. Memory is proportional to the largest id.
  void set(int32_t id, double key);
  /// Nothing happens if it is not there.
  void erase(int32_t id);

 private:
  struct Entry {
    double key;
    int32_t id;
    bool operator<(const Entry& other) const {
      return key != other.key ? key < other.key : id < other.id;
    }
  };
  void place(size_t at, const Entry& entry);
  void sift(size_t at, const Entry& entry);  // Finds the place of `entry`, starting from a hole.

  std::vector<Entry> entries_;
  std::vector<int32_t> position_;  // [id]; -1: not there.
};

}  // namespace skein::plans
