#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// What workers have reported of neighbours and groups that do not answer. Such a peer has usually
/// died, which is heard on its own connection; so a report is waited with for a moment, and a loss
/// explains it. A state machine without clock or I/O.
class PeerFailures {
 public:
  /// `peer` 0: not known. False: the worker has said so before.
  bool add(WorkerId worker, WorkerId peer, std::string reason, uint64_t now_us);
  /// The loss of a worker explains what it was part of.
  void explain(WorkerId lost);
  void clear() { failures_.clear(); }
  /// The first failure that nothing has explained in time. Not those of a peer that is silent
  /// itself: its lease will say what has become of it.
  std::optional<std::string> overdue(uint64_t now_us,
                                     const std::function<bool(WorkerId)>& is_silent) const;

 private:
  struct Failure {
    uint64_t due_us = 0;
    std::string reason;
  };
  std::map<std::pair<WorkerId, WorkerId>, Failure> failures_;  // By who reports it, and of whom.
};

}  // namespace skein::plans
