#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/coordinator/journal.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

/// What is known before the first worker joins: what was done, and on which data.
struct StartPoint {
  uint64_t committed_steps = 0;                   // By the journal.
  double committed_norm = 0;                      // Gradient norm of the last of them.
  std::map<uint64_t, uint64_t> step_generations;  // By the first step that each covers.
  uint64_t durable_step = 0;  // Of the checkpoint to go on from; 0: the initial weights.
  bool has_journal = false;   // It knows of a plan or a commit.
  uint64_t generation = 0;    // Largest one that was assigned.
  std::optional<plans::Plan> last_plan;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;
};

/// Looks at the data and at `load_path`, the checkpoint to go on from; empty: fresh weights.
/// InvalidArgument   if the checkpoint is of another model or of other data, or has all steps.
/// Else as `TokenData::open` and `CheckpointReader::open`.
absl::StatusOr<StartPoint> find_start(const plans::JobSpec& job, const std::string& load_path);
/// Adds what an earlier life of this run's coordinator has left.
absl::Status read_journal(Journal& journal, StartPoint& start);

}  // namespace skein::actors
