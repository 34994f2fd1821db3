#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/messages.hpp"
#include "net/codec/profile.hpp"
#include "net/data/data_plane.hpp"
#include "net/data/link_probe.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// What a worker measures of itself and of its links, and answers others that measure theirs.
/// Owned by one actor; touched only from its handlers.
class Profiling {
 public:
  explicit Profiling(std::shared_ptr<net::DataPlane> plane) : plane_(std::move(plane)) {}

  /// What is to be measured; none: others are only to be answered, or something is measured
  /// already.
  std::optional<ProfileWork> on_request(const net::ProfileRequest& request, plans::WorkerId self,
                                        const plans::JobSpec& job,
                                        const std::shared_ptr<gpu::Device>& device);
  /// What was measured. Where there was no memory for it beside what the worker holds, what it had
  /// measured before of the same, and only the links that are asked for now.
  absl::StatusOr<plans::MeasuredWorker> on_measured(const ProfileMeasured& result);

 private:
  const std::shared_ptr<net::DataPlane> plane_;
  std::shared_ptr<net::LinkProbe> links_;          // From the first request on.
  std::map<plans::WorkerId, std::string> planes_;  // Whom we answer; kPeersMax.
  std::vector<int64_t> rows_;  // Those that are or were measured last, and the links.
  std::vector<plans::WorkerId> peers_;
  std::optional<plans::MeasuredWorker> last_;
  bool is_measuring_ = false;
};

}  // namespace skein::actors
