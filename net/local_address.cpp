#include "net/local_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "net/address.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

struct FreeFound {
  void operator()(addrinfo* found) const { freeaddrinfo(found); }
};

struct Found {
  int code = 0;  // What getaddrinfo returned.
  std::unique_ptr<addrinfo, FreeFound> first;
};

Found find(const std::string& host, uint16_t port, int flags) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  addrinfo* first = nullptr;
  const int code = getaddrinfo(name.c_str(), absl::StrCat(port).c_str(), &hints, &first);
  return {code, std::unique_ptr<addrinfo, FreeFound>(first)};
}

std::string host_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  return absl::StrCat("[", text.data(), "]");
}

/// Empty if there is no way to the address.
std::string local_host(const addrinfo& to) {
  const int descriptor = socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {};
  sockaddr_storage local{};
  socklen_t local_bytes = sizeof(local);
  // Connecting a datagram socket only chooses the way.
  const bool known =
      connect(descriptor, to.ai_addr, to.ai_addrlen) == 0 &&
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &local_bytes) == 0;
  close(descriptor);
  return known ? host_text(local) : std::string();
}

}  // namespace

absl::StatusOr<std::string> local_address_to(const std::string& peer) {
  SKEIN_ASSIGN_OR_RETURN(const HostPort to, parse_address(peer));
  const Found found = find(to.host, to.port, 0);
  if (found.code != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot find the address of ", to.host, ": ", gai_strerror(found.code)));
  }
  for (const addrinfo* each = found.first.get(); each != nullptr; each = each->ai_next) {
    std::string host = local_host(*each);
    if (!host.empty()) return host;
  }
  return absl::UnavailableError(absl::StrCat("this machine has no way to ", peer));
}

bool may_be_local(const std::string& host) {
  const Found found = find(host, 0, AI_NUMERICHOST);
  if (found.code != 0) return true;
  const int descriptor = socket(found.first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return true;
  const bool absent = bind(descriptor, found.first->ai_addr, found.first->ai_addrlen) != 0 &&
                      errno == EADDRNOTAVAIL;
  close(descriptor);
  return !absent;
}

}  // namespace skein::net
