#pragma once

#include "plans/modes/mode_list.hpp"

namespace skein::sim {

/// The training modes of the product, and before them one that only the simulation has, which takes
/// every job: each step is a commit, with a snapshot of its own, and a stage is asked for nothing
/// before the one in front of it is complete. What has to be written for a mode is in its file: the
/// part in planning, in the coordinator and in a worker; nothing of the product is changed.
const plans::ModeList& modes_with_third();

}  // namespace skein::sim
