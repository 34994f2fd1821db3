#include "net/address.hpp"

#include <charconv>

#include "absl/strings/str_cat.h"

namespace skein::net {

absl::StatusOr<HostPort> parse_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort result;
  if (colon != std::string::npos && colon > 0) {
    result.host = address.substr(0, colon);
    const bool is_one = result.host.find_first_of(", \t\r\n") == std::string::npos;
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, result.port);
    if (is_one && error == std::errc() && stop == end) return result;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", address, "\" is no address; expected host:port, as in 127.0.0.1:29400"));
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

bool is_unspecified(const std::string& host) {
  return host == "0.0.0.0" || host == "[::]" || host == "*";
}

std::string reachable_address(const std::string& told, const std::string& known) {
  const absl::StatusOr<HostPort> here = parse_address(told);
  const absl::StatusOr<HostPort> there = parse_address(known);
  if (!here.ok() || !there.ok()) return told;
  return is_unspecified(here->host) ? absl::StrCat(there->host, ":", here->port) : told;
}

absl::StatusOr<HostPort> check_listen_address(const std::string& address, bool insecure) {
  absl::StatusOr<HostPort> parsed = parse_address(address);
  if (parsed.ok() && !insecure && !is_loopback(parsed->host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "refusing to listen on ", address,
        ": connections are neither encrypted nor authenticated yet; use a loopback address, or "
        "--insecure on a network where every machine is trusted"));
  }
  return parsed;
}

}  // namespace skein::net
