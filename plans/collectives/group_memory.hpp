#pragma once

#include <cstdint>

#include "plans/job/job_spec.hpp"

namespace skein::plans {

/// A group of devices works in so many channels at most, each with buffers of its own: NCCL's
/// `maxCTAs`, which `gpu/cuda/nccl_group` sets. Left to itself the library may take 64.
inline constexpr int kGroupChannelsMax = 16;

/// Memory that groups of devices take on a GPU of a plan, which the library gets for itself, beside
/// all that a device gives out.
///
/// A stage has a group for its gradients and one for each of its two links, which a pipeline of one
/// rank does not have, and an embedding that is tied to another stage has one. In each channel a
/// member receives from up to three others where they sum (a ring's one, and two of a tree), from
/// up to two over a link, each with buffers for the library's three protocols: 4 MiB
/// (NCCL_BUFFSIZE), 4.7 MiB and 0.5 MiB (from memory of its sources; not measured).
///
/// Not counted: NCCL_BUFFSIZE and NCCL_MAX_CTAS where workers set more, groups that are kept of
/// earlier plans, a link on which one replica faces more than two, and more stages on a worker than
/// `parallelism.virtual_stages`, which only the planner takes.
///
/// `gpus`  GPUs that a plan may have, as a group has no other members. Returns 0 where no plan
/// forms such groups.
int64_t device_group_bytes(const JobSpec& job, int64_t gpus);

}  // namespace skein::plans
