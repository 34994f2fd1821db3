#pragma once

#include "actors/coordinator/run_observer.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::cli {

/// Tells an observer of a simulated run what a coordinator would tell it of a real one: workers,
/// plan, steps, timings of the profiled steps. Losses are NaN.
void replay(const plans::JobSpec& job, const plans::Plan& plan, const plans::ClusterSpec& cluster,
            const plans::Simulation& simulation, actors::RunObserver& observer);

}  // namespace skein::cli
