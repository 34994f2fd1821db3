#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/codec/envelope.hpp"
#include "net/event_loop.hpp"

namespace skein::cli {

/// Where the coordinator listens that `where` means: an address, or a run folder, whose
/// coordinator.address is used. NotFound if it is neither; PermissionDenied, Unavailable if it
/// cannot be looked at. Unavailable if the run has no coordinator yet.
absl::StatusOr<std::string> coordinator_address(const std::string& where);

/// Sends the requests, the last of which is answered with a status. FailedPrecondition if one is
/// refused, DeadlineExceeded if there is no answer within 3 s; else errors of `connect_control`.
absl::StatusOr<net::Status> ask_coordinator(net::EventLoop& loop, const std::string& address,
                                            const std::vector<net::ControlBody>& requests);

}  // namespace skein::cli
