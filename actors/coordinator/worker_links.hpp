#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "net/codec/envelope.hpp"
#include "net/control/control_link.hpp"
#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::actors {

/// Viewers, and workers that are about to join.
inline constexpr size_t kStrangersMax = 256;

/// The connections of the coordinator, and which worker is on which. Belongs to the Coordinator.
class WorkerLinks {
 public:
  struct Peer {
    std::shared_ptr<net::ControlLink> link;
    net::schema::Role role = net::schema::Role::VIEWER;
    plans::WorkerId worker;  // 0 until it has joined.
    uint64_t opened_us = 0;
  };

  /// Of those that have not joined, the oldest one is closed if there are too many.
  void open(plans::PeerNumber number, std::shared_ptr<net::ControlLink> link,
            net::schema::Role role, uint64_t now_us);
  /// Null: it is closed.
  const Peer* find(plans::PeerNumber number) const;
  /// The worker has joined on this connection, which is open.
  void bind(plans::PeerNumber number, plans::WorkerId worker);
  /// The connection has ended. The worker that is without one now; 0: nobody is.
  plans::WorkerId close(plans::PeerNumber number);
  /// The worker is no member any more. Its link may be half open and never end by itself: nothing
  /// of it is heard from now on.
  void dismiss(plans::WorkerId worker);
  /// Ends the connections of those that have not joined.
  void close_strangers();
  /// ... for so long that they will not.
  void close_silent(uint64_t now_us);

  /// To the receiver of the head, if it has a connection.
  void send(const net::EnvelopeHead& head, const net::ControlBody& body) const;
  /// The same bytes to each of the workers that has a connection.
  void send_same(const net::EnvelopeHead& head, const net::ControlBody& body,
                 const std::vector<plans::WorkerId>& workers) const;
  const std::map<plans::WorkerId, plans::PeerNumber>& workers() const { return peer_of_; }

 private:
  void forget(plans::PeerNumber number);

  // Invariants: a worker's connection is open, and says that it is the worker's; the others are the
  // strangers.
  std::map<plans::PeerNumber, Peer> peers_;
  std::set<plans::PeerNumber> strangers_;  // In order of arrival.
  std::map<plans::WorkerId, plans::PeerNumber> peer_of_;
};

}  // namespace skein::actors
