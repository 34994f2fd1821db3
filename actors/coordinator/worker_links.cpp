#include "actors/coordinator/worker_links.hpp"

#include <utility>

namespace skein::actors {

void WorkerLinks::open(plans::PeerNumber number, std::shared_ptr<net::ControlLink> link,
                       net::schema::Role role) {
  peers_[number] = {std::move(link), role, plans::WorkerId{}};
}

const WorkerLinks::Peer* WorkerLinks::find(plans::PeerNumber number) const {
  const auto peer = peers_.find(number);
  return peer == peers_.end() ? nullptr : &peer->second;
}

void WorkerLinks::bind(plans::PeerNumber number, plans::WorkerId worker) {
  peers_.at(number).worker = worker;
  peer_of_[worker] = number;
}

plans::WorkerId WorkerLinks::close(plans::PeerNumber number) {
  const auto peer = peers_.find(number);
  if (peer == peers_.end()) return {};
  const plans::WorkerId worker = peer->second.worker;
  peers_.erase(peer);
  const auto current = peer_of_.find(worker);
  if (current == peer_of_.end() || current->second != number) return {};  // It is back already.
  peer_of_.erase(current);
  return worker;
}

void WorkerLinks::dismiss(plans::WorkerId worker) {
  const auto number = peer_of_.find(worker);
  if (number == peer_of_.end()) return;
  peers_.at(number->second).link->close();
  peers_.erase(number->second);
  peer_of_.erase(number);
}

void WorkerLinks::close_strangers() {
  for (const auto& [number, peer] : peers_) {
    if (peer.worker.value == 0) peer.link->close();
  }
}

void WorkerLinks::send(const net::EnvelopeHead& head, const net::ControlBody& body) const {
  const auto number = peer_of_.find(plans::WorkerId{head.receiver});
  if (number != peer_of_.end()) peers_.at(number->second).link->send(net::encode(head, body));
}

}  // namespace skein::actors
