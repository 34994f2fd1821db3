#include "actors/coordinator/worker_links.hpp"

#include <utility>

namespace skein::actors {
namespace {

/// A worker joins as soon as it is connected.
constexpr uint64_t kJoinPatienceUs = 10'000'000;

}  // namespace

void WorkerLinks::open(plans::PeerNumber number, std::shared_ptr<net::ControlLink> link,
                       net::schema::Role role, uint64_t now_us) {
  if (strangers_.size() >= kStrangersMax) forget(*strangers_.begin());
  peers_[number] = {std::move(link), role, plans::WorkerId{}, now_us};
  strangers_.insert(number);
}

void WorkerLinks::forget(plans::PeerNumber number) {
  peers_.at(number).link->close();
  peers_.erase(number);
  strangers_.erase(number);
}

const WorkerLinks::Peer* WorkerLinks::find(plans::PeerNumber number) const {
  const auto peer = peers_.find(number);
  return peer == peers_.end() ? nullptr : &peer->second;
}

void WorkerLinks::bind(plans::PeerNumber number, plans::WorkerId worker) {
  Peer& peer = peers_.at(number);
  peer.worker = worker;
  peer.link->admit();
  strangers_.erase(number);
  peer_of_[worker] = number;
}

plans::WorkerId WorkerLinks::close(plans::PeerNumber number) {
  const auto peer = peers_.find(number);
  if (peer == peers_.end()) return {};
  const plans::WorkerId worker = peer->second.worker;
  peers_.erase(peer);
  strangers_.erase(number);
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
  for (plans::PeerNumber number : strangers_) peers_.at(number).link->close();
}

void WorkerLinks::close_silent(uint64_t now_us) {
  std::vector<plans::PeerNumber> silent;
  for (plans::PeerNumber number : strangers_) {
    const Peer& peer = peers_.at(number);
    const bool is_late = now_us > peer.opened_us + kJoinPatienceUs;
    if (is_late && peer.role == net::schema::Role::WORKER) silent.push_back(number);
  }
  for (plans::PeerNumber number : silent) forget(number);
}

void WorkerLinks::send(const net::EnvelopeHead& head, const net::ControlBody& body) const {
  const auto number = peer_of_.find(plans::WorkerId{head.receiver});
  if (number != peer_of_.end()) peers_.at(number->second).link->send(net::encode(head, body));
}

void WorkerLinks::send_same(const net::EnvelopeHead& head, const net::ControlBody& body,
                            const std::vector<plans::WorkerId>& workers) const {
  const net::ControlMessage message = net::encode(head, body);
  for (plans::WorkerId worker : workers) {
    const auto number = peer_of_.find(worker);
    if (number != peer_of_.end()) peers_.at(number->second).link->send(message);
  }
}

}  // namespace skein::actors
