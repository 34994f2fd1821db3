#pragma once

#include <optional>
#include <string>

#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::plans {

/// What a device of that name (`gpu::DeviceInfo::name`) computes like: "cuda:1 NVIDIA H200
/// (0000:1b:00.0) at speed 0.5" is "cuda NVIDIA H200", and "cpu x4" is itself: sums of so many
/// threads are others.
std::string kind_of_device(const std::string& name);

/// Whether the workers of a job with `tokens.reproducible` compute on like devices, as a token has
/// the same bits only there. All are compared with the first one that was heard of in this life of
/// the coordinator. A worker says what it computes on when it has the job, and may have its part of
/// a plan by then, so it is told of and not refused. Names do not say which model a processor is.
/// A state machine without clock or I/O.
class LikeDevices {
 public:
  /// The worker computes on another device than it did, or says for the first time on which. An
  /// event if that is not like the first one.
  std::optional<RunEvent> on_device(WorkerId worker, const std::string& name);

 private:
  WorkerId first_;
  std::string first_kind_;  // Empty: nobody has said anything.
};

}  // namespace skein::plans
