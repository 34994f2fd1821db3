#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::net {

/// The address that this machine has on the way to `peer` ("host:port"), as it stands before a
/// port: one of IPv6 in brackets. Sends nothing to the peer, which need not be there; but its name
/// may have to be asked for, so this may block for seconds.
/// InvalidArgument   if `peer` does not parse.
/// Unavailable       if its name is not known, or there is no way to it, at the moment.
absl::StatusOr<std::string> local_address_to(const std::string& peer);

/// False if `host` is an address in numbers that this machine has not, or not any more. True for
/// names: nobody is asked for theirs.
bool may_be_local(const std::string& host);

}  // namespace skein::net
