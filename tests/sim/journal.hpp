#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/coordinator/journal.hpp"

namespace skein::sim {

/// The product's terms are times: more apart than there are plans in a life.
inline constexpr uint64_t kTermStep = 1'000'000;

/// What is on the coordinator's disk: it survives its crashes.
struct JournalStore {
  uint64_t term = 0;  // Grows by `kTermStep` with each life of the coordinator.
  int lives = 0;
  std::optional<uint64_t> floor;                    // See `Journal::generation_floor`.
  std::map<uint64_t, plans::CommitRecord> commits;  // By step.
  std::map<uint64_t, plans::Plan> plans;            // By generation.
  bool is_full = false;                             // Nothing can be written.
  bool has_fence = true;  // An earlier life writes nothing once a later one has begun.
  int pending = 0;        // Commits that are on their way to it.
  // Called at once with each change.
  std::function<void(const plans::CommitRecord&)> on_append;
  std::function<void(uint64_t first_step)> on_rewind;
  std::function<void(const plans::Plan&)> on_plan;
};

/// Takes back the `count` newest commits and plans, in the order in which they were written.
void forget_newest(JournalStore& store, size_t count);

/// The clock is behind when all is lost: the next life has an older term than the last one.
void set_clock_back(JournalStore& store);

/// A new term on the store, which must outlive it.
std::shared_ptr<actors::Journal> open_journal(JournalStore& store);

}  // namespace skein::sim
