#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::actors {

/// Where the generations of a life begin if the largest known of those before, or of where they
/// began, is `newest`: at the next hundred but for a few that may have been lost.
constexpr uint64_t next_generation_floor(uint64_t newest) {
  return (newest + 50) / 100 * 100 + 100;
}

/// What must survive the coordinator: committed steps, plans and terms, in one SQLite file of the
/// run folder. A step is written before its commit is broadcast, so what any worker applied is
/// here. Written ahead and handed to the kernel with every step: it survives the death of the
/// process. Not thread-safe; calls block on the file.
class Journal {
 public:
  /// Opens or makes the file. `term()` is then larger than that of every life before, also of those
  /// whose journal is lost, if this machine's clock is not behind.
  /// Unavailable with SQLite's reason (disk full, no permission); DataLoss if it is no database, or
  /// damaged.
  static absl::StatusOr<std::unique_ptr<Journal>> open(const std::string& path);
  virtual ~Journal() = default;

  virtual uint64_t term() const = 0;
  /// No life before has assigned a plan of a larger generation than this, also none that was never
  /// written, or that a power cut has taken: two plans of one number would pass for one with the
  /// workers that still hold the older one. A multiple of 100, so that people see which life a plan
  /// is of; 0 in a new journal.
  virtual uint64_t generation_floor() const = 0;
  /// For a run whose journal was lost: where its plans begin instead, also in later lives.
  virtual absl::Status raise_floor(uint64_t generation) = 0;
  /// The plans of the largest generations, `most` at most, the newest first, without damaged ones.
  /// DataLoss if the newest is damaged.
  virtual absl::StatusOr<std::vector<plans::Plan>> last_plans(size_t most) = 0;
  /// A plan that is about to be assigned. Unavailable if the file is not at its path any more.
  virtual absl::Status append_plan(const plans::Plan& plan) = 0;
  /// Forgets commits of steps >= `first_step`: the run goes on from an older checkpoint.
  /// Unavailable as with a plan.
  virtual absl::Status rewind(uint64_t first_step) = 0;
  /// AlreadyExists if the step was committed before. Unavailable as with a plan, but noticed up to
  /// half a second late: a look at the path costs a fifth of what a commit does.
  virtual absl::Status append(const plans::CommitRecord& record) = 0;
  /// Asks whether a later life has begun: FailedPrecondition then. OK also where the file cannot be
  /// asked, which is no sign of one. To be called on any one thread, and after the journal's end.
  virtual std::function<absl::Status()> later_life_check() const = 0;
  /// Everything committed, by step.
  virtual absl::StatusOr<std::vector<plans::CommitRecord>> read() = 0;
};

}  // namespace skein::actors
