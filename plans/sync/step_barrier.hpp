#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plans/sync/replica_table.hpp"

namespace skein::plans {

/// Pipeline replicas that take every step together: a round is one step of each of them, at every
/// stage the same steps. So a pipeline replica enters with the first round that no stage has begun,
/// and when the barrier closes, every stage still does the rounds that any stage has begun. Without
/// that, pipelines that meet in another order at one stage than at the next one wait for each other
/// forever. Not thread-safe.
class StepBarrier {
 public:
  StepBarrier(uint32_t stages, int32_t server) : server_(server), begun_(stages) {}

  int32_t server() const { return server_; }
  size_t pipeline_count() const { return entries_.size(); }

  /// The pipeline replica has taken `steps` steps (since it joined) elsewhere, or will have.
  void enter(uint32_t pipeline, uint64_t steps);
  void leave(uint32_t pipeline) { entries_.erase(pipeline); }
  /// No new round. Returns for each pipeline replica how many steps it will have taken then.
  std::map<uint32_t, uint64_t> close();
  bool is_closed() const { return last_ != UINT64_MAX; }
  /// It is closed, and all its rounds have begun.
  bool is_over() const;

  /// Begins the stage's next round if everybody of it waits there: who they are, ascending.
  std::optional<std::vector<uint32_t>> begin_round(uint32_t stage, const ReplicaTable& table);

 private:
  struct Entry {
    uint64_t first_round = 0;
    uint64_t steps_before = 0;
  };

  uint64_t rounds_begun() const;  // At the stage that is ahead.
  void skip_empty_rounds(uint32_t stage);

  int32_t server_;
  std::map<uint32_t, Entry> entries_;  // By pipeline replica.
  std::vector<uint64_t> begun_;        // [stages] rounds begun; the next one's number.
  uint64_t last_ = UINT64_MAX;         // Closed: this round does not take place.
};

}  // namespace skein::plans
