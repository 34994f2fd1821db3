#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace skein::net {

/// "host:port" taken apart. The host of an IPv6 address stands in brackets.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
/// InvalidArgument   if there is no port, it is no number, or the host is empty or has a comma or a
///                   blank, as several addresses have.
absl::StatusOr<HostPort> parse_address(const std::string& address);

/// All interfaces of a machine: 0.0.0.0, [::] and "*".
bool is_unspecified(const std::string& host);
/// 127.0.0.0/8, [::1] and localhost.
bool is_loopback(const std::string& host);

/// Where to reach who listens on `told`, for one who reaches its machine by `known`: "0.0.0.0:4000"
/// and "coordinator:29400" give "coordinator:4000". Any other host that is told is kept.
std::string reachable_address(const std::string& told, const std::string& known);

/// Checks an address to listen on. InvalidArgument   if it does not parse, or is not a loopback
/// address and not `insecure`: connections are neither encrypted nor authenticated yet.
absl::StatusOr<HostPort> check_listen_address(const std::string& address, bool insecure);

}  // namespace skein::net
