#pragma once

#include <vector>

#include "plans/job/model_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// `plan` with its workers exchanged so that as many bytes of parameters as possible stay where
/// they are in `current`. A slot of `plan` is a worker and all that it holds; each goes to one of
/// `workers`. Of equally good exchanges one that leaves most workers at the place (stages and
/// position) that they have in `current`; slots that nobody holds anything of get the free workers
/// by ascending id. Only for workers whose devices are alike.
///
/// `workers`  those that may take a slot, ascending; at least as many as slots.
/// Cost       O(P log P) for P workers, and O(Q^2 * (L + Q)) for those Q that cannot get just the
///            layers that they hold. If there are more than 256 of these, they get the slots of
///            which they hold most, one after the other, which keeps less than the best exchange
///            would.
Plan keep_state_in_place(Plan plan, const Plan& current, std::vector<WorkerId> workers,
                         const ModelSpec& model);

}  // namespace skein::plans
