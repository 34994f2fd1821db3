#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/worker/prepare_io.hpp"
#include "net/reduce/reducer.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// What the job's reducer has to know of `group`, of which `replica` is a member. A tied gradient
/// is always summed: the members' values are parts of one gradient, not gradients of their own.
///
/// `addresses`   of the partners' data planes; `own` is that of this worker. With "hisum" and
///               "hitopk" all members are partners, and those of one host come first.
net::ReducerOptions group_reducer(const plans::JobSpec& job, const plans::PlanPart& plan,
                                  const plans::GroupPart& group, const PreparedReplica& replica,
                                  const std::map<plans::WorkerId, std::string>& addresses,
                                  const std::string& own);

/// Sizes of the tensors whose gradients the replicas of a stage of `layers` put together, in order:
/// all but a tied one whose other use is in another stage.
std::vector<size_t> stage_tensor_floats(const plans::ModelSpec& model,
                                        const plans::LayerRange& layers);

/// A number for each address, the same for those of one host: its first place in the list.
std::vector<uint32_t> host_numbers(const std::vector<std::string>& addresses);

}  // namespace skein::actors
