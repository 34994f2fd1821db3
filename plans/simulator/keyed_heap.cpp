#include "plans/simulator/keyed_heap.hpp"

namespace skein::plans {

void KeyedHeap::set(int32_t id, double key) {
  if (static_cast<size_t>(id) >= position_.size()) {
    position_.resize(static_cast<size_t>(id) + 1, -1);
  }
  const Entry entry{key, id};
  int32_t at = position_[static_cast<size_t>(id)];
  if (at < 0) {
    at = static_cast<int32_t>(entries_.size());
    entries_.push_back(entry);
  }
  sift(static_cast<size_t>(at), entry);
}

void KeyedHeap::erase(int32_t id) {
  if (static_cast<size_t>(id) >= position_.size() || position_[static_cast<size_t>(id)] < 0) return;
  const auto at = static_cast<size_t>(position_[static_cast<size_t>(id)]);
  position_[static_cast<size_t>(id)] = -1;
  const Entry last = entries_.back();
  entries_.pop_back();
  if (at < entries_.size()) sift(at, last);
}

void KeyedHeap::place(size_t at, const Entry& entry) {
  entries_[at] = entry;
  position_[static_cast<size_t>(entry.id)] = static_cast<int32_t>(at);
}

void KeyedHeap::sift(size_t at, const Entry& entry) {
  while (at > 0 && entry < entries_[(at - 1) / 2]) {
    place(at, entries_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (size_t child = 2 * at + 1; child < entries_.size(); child = 2 * at + 1) {
    if (child + 1 < entries_.size() && entries_[child + 1] < entries_[child]) ++child;
    if (!(entries_[child] < entry)) break;
    place(at, entries_[child]);
    at = child;
  }
  place(at, entry);
}

}  // namespace skein::plans
