#pragma once

#include "plans/job/job_spec.hpp"
#include "plans/simulator/policy_simulation.hpp"

namespace skein::plans {

/// Gives a simulation of the job's policy the job's rounds, all of their mean length, and time for
/// several of them at the pace that pipeline replicas have, stalls included. If these are more than
/// about 20,000 updates there are no rounds: then it matters little that all wait at their ends.
/// What the global average takes may matter all the same.
///
/// `global_us`   what the global average at the end of a round takes.
/// `rounds`      > 1; the first one is warm-up, and so is that share of the time without rounds. Of
///               rounds that take longer than was estimated fewer end in that time.
/// `options`     whose `round_samples`, `global_us` and `warm_up_us` are overwritten, and
///               `duration_us` raised. What pipeline replicas are like is set before.
/// Returns       what the simulated pace is to be multiplied by: if there are no rounds about the
///               share of the time that is no global average, else 1.
[[nodiscard]] double set_rounds(const JobSpec& job, double global_us, double rounds,
                                PolicySimulationOptions& options);

}  // namespace skein::plans
