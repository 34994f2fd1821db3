#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <caf/send.hpp>

#include "absl/status/statusor.h"
#include "actors/messages.hpp"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"

namespace skein::actors {

/// Listens for control connections, numbers them from 1, and tells `to` of each: PeerOpened,
/// PeerMessage, PeerClosed, and PeerRejected. These are sent from the loop's thread, until the
/// listener has gone. Errors of `net::listen_control`.
template <class Actor>
absl::StatusOr<std::unique_ptr<net::ControlListener>> listen_for_peers(
    net::EventLoop& loop, const net::ListenOptions& options, const Actor& to) {
  auto numbers = std::make_shared<std::atomic<plans::PeerNumber>>(0);
  auto on_accept = [to, numbers](std::shared_ptr<net::ControlLink> link,
                                 net::schema::Role role) -> net::ControlLink::Handlers {
    const plans::PeerNumber peer = ++*numbers;
    caf::anon_send(to, PeerOpened{peer, std::move(link), role});
    return {[to, peer](net::Envelope message) {
              caf::anon_send(to, PeerMessage{peer, std::move(message)});
            },
            [to, peer](absl::Status why) {
              caf::anon_send(to, PeerClosed{peer, std::move(why)});
            }};
  };
  auto on_rejected = [to](const std::string& peer, const std::string& reason) {
    caf::anon_send(to, PeerRejected{peer, reason});
  };
  return net::listen_control(loop, options, on_accept, on_rejected);
}

}  // namespace skein::actors
