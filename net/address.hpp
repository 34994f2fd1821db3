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
/// InvalidArgument   if there is no port, it is no number, or the host is empty.
absl::StatusOr<HostPort> parse_address(const std::string& address);

/// 127.0.0.0/8, [::1] and localhost.
bool is_loopback(const std::string& host);

/// Checks an address to listen on. InvalidArgument   if it does not parse, or is not a loopback
/// address and not `insecure`: connections are neither encrypted nor authenticated yet.
absl::StatusOr<HostPort> check_listen_address(const std::string& address, bool insecure);

}  // namespace skein::net
