#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::plans {

/// State that workers have left on disk who gave a coordinator up.
struct LeftState {
  uint64_t steps_done = 0;
  uint64_t generation = 0;  // In which the last of them was committed.
};

/// What the journal of a run says of its steps.
struct JournaledSteps {
  std::vector<CommitRecord> records;         // By step.
  std::map<uint64_t, uint64_t> generations;  // By the first step that each covers.
  uint64_t newest_plan = 0;                  // Its generation; 0: there was none.

  uint64_t committed() const { return records.empty() ? 0 : records.back().step + 1; }
};

// The loss of left state by which a run may go on; 0: not known. None: the run has not come through
// that state, or has taken it back. The generation tells it from state of a past that was.

/// For the coordinator's own steps, of which it knows all: state of later ones is not taken.
std::optional<double> loss_of_sought(const SeekLeftState& sought, const LeftState& left);
/// For a run that is resumed for `steps` in all. Its journal may have lost its newest steps, but
/// none from before its last plan: state of later ones is taken if that plan or a later one made
/// it. State of all steps is not: a start with fewer is refused, and what is refused changes
/// nothing; one with just as many ends well, as the state is sought before the first plan goes back
/// to an older one.
std::optional<double> loss_of_resumed(const JournaledSteps& past, uint64_t steps,
                                      const LeftState& left);

}  // namespace skein::plans
