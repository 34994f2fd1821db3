#include "tests/sim/network.hpp"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

constexpr uint64_t kConnectRetryUs = 100'000;
/// After that TCP sends what is not acknowledged again, and nothing new: its least time-out.
constexpr uint64_t kUnacknowledgedUs = 200'000;

}  // namespace

void Channel::push(Round round, uint64_t extra_us) {
  if (silent_) return;
  last_due_us_ = std::max(last_due_us_, world_.now_us() + network_.delay_us() + extra_us);
  rounds_.emplace_back(last_due_us_, std::move(round));
  world_.at(last_due_us_, 0, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->pump();
  });
}

void Channel::pump() {
  const auto self = shared_from_this();
  if (pumping_) return;
  if (world_.is_paused(to_)) {  // The kernel keeps it.
    if (rounds_.empty()) return;
    return world_.run_in(to_, [weak = weak_from_this()] {
      if (auto alive = weak.lock()) alive->pump();
    });
  }
  pumping_ = true;
  while (!rounds_.empty() && rounds_.front().first <= world_.now_us() &&
         network_.carries(from_, to_) && world_.is_alive(to_)) {
    Round round = std::move(rounds_.front().second);
    const uint64_t due_us = rounds_.front().first;
    rounds_.pop_front();
    if (round()) continue;
    rounds_.emplace_front(due_us, std::move(round));
    break;
  }
  pumping_ = false;
}

void Channel::go_silent() {
  silent_ = true;
  rounds_.clear();
}

/// Two ends, each of which belongs to a process, and a channel from each to the other.
struct Connection : std::enable_shared_from_this<Connection> {
  struct End {
    ProcessId process = 0;
    net::ControlLink::Handlers handlers;
    std::shared_ptr<Channel> out;
    bool closed = false;
  };
  std::array<End, 2> ends;

  explicit Connection(Network& its_network) : network(its_network) {}
  Network& network;

  void send(size_t from, const net::ControlMessage& message) {
    End& end = ends[from];
    if (end.closed || !network.world().is_alive(end.process)) return;
    const ProcessId to = ends[1 - from].process;
    if (network.on_message()) network.on_message()(end.process, to, message, false);
    std::vector<std::byte> bytes(message.bytes().begin(), message.bytes().end());
    end.out->push([weak = weak_from_this(), from, bytes = std::move(bytes)] {
      if (auto self = weak.lock()) self->deliver(1 - from, bytes);
      return true;
    });
  }

  void deliver(size_t to, const std::vector<std::byte>& bytes) {
    End& end = ends[to];
    if (end.closed) return;
    auto message = net::ControlMessage::parse(bytes);
    SKEIN_CHECK(message.ok()) << std::string(message.status().message());
    if (network.on_message()) {
      network.on_message()(ends[1 - to].process, end.process, *message, true);
    }
    auto decoded = net::decode(*message);
    SKEIN_CHECK(decoded.ok()) << std::string(decoded.status().message());
    const auto on_message = end.handlers.on_message;
    if (on_message) on_message(*std::move(decoded));
  }

  /// An end is closed by its process, which hears of it, or (`why`) by the other.
  void end_side(size_t side, const absl::Status& why) {
    End& end = ends[side];
    if (end.closed) return;
    end.closed = true;
    net::ControlLink::Handlers handlers = std::move(end.handlers);
    end.handlers = {};
    network.world().run_in(end.process, [on_closed = std::move(handlers.on_closed), why] {
      if (on_closed) on_closed(why);
    });
  }

  void close(size_t side) {
    if (ends[side].closed) return;
    push_end(side, absl::UnavailableError("the peer closed the connection"));
    end_side(side, absl::OkStatus());
  }

  /// What `side` has sent arrives first.
  void push_end(size_t side, const absl::Status& why) {
    ends[side].out->push([weak = weak_from_this(), side, why] {
      if (auto self = weak.lock()) self->end_side(1 - side, why);
      return true;
    });
  }
};

namespace {

class SimulatedLink final : public net::ControlLink {
 public:
  SimulatedLink(std::shared_ptr<Connection> connection, size_t side, std::string peer)
      : connection_(std::move(connection)), side_(side), peer_(std::move(peer)) {}

  void send(net::ControlMessage message) override { connection_->send(side_, message); }
  void close() override { connection_->close(side_); }
  const std::string& peer_address() const override { return peer_; }

 private:
  std::shared_ptr<Connection> connection_;
  size_t side_;
  std::string peer_;
};

}  // namespace

uint64_t Network::delay_us() {
  if (world_.chance(options_.late_chance)) return world_.between(0, options_.late_us_max);
  return world_.between(options_.delay_us_min, options_.delay_us_max);
}

void Network::listen(ProcessId server, OnAccept on_accept) {
  server_ = server;
  on_accept_ = std::move(on_accept);
}

void Network::connect(ProcessId client, double timeout_seconds, net::ControlLink::Handlers handlers,
                      OnConnected on_done) {
  auto next = std::make_shared<Attempt>();
  next->client = client;
  next->deadline_us = world_.now_us() + static_cast<uint64_t>(timeout_seconds * 1e6);
  next->handlers = std::move(handlers);
  next->on_done = std::move(on_done);
  world_.after(delay_us(), client, [this, next] { attempt(next); });
}

void Network::attempt(const std::shared_ptr<Attempt>& next) {
  const bool reachable =
      server_ != 0 && world_.is_alive(server_) && on_accept_ && !is_parted(next->client, server_);
  if (reachable) return establish(next);
  if (world_.now_us() >= next->deadline_us) {
    return next->on_done(absl::UnavailableError("nobody answers"));
  }
  world_.after(kConnectRetryUs, next->client, [this, next] { attempt(next); });
}

std::string Network::peer_address(ProcessId process) const {
  const auto host = hosts_.find(process);
  if (host == hosts_.end()) return world_.name(process);
  return absl::StrCat(host->second, ":", process);
}

void Network::establish(const std::shared_ptr<Attempt>& next) {
  auto connection = std::make_shared<Connection>(*this);
  connection->ends[0].process = next->client;
  connection->ends[1].process = server_;
  for (size_t side = 0; side < 2; ++side) {
    auto& end = connection->ends[side];
    end.out =
        std::make_shared<Channel>(world_, *this, end.process, connection->ends[1 - side].process);
    add(end.out);
  }
  connections_.push_back(connection);
  // The server hears of the connection before what comes over it.
  // By the process that it was made to: another one may listen when that one wakes up.
  connection->ends[0].out->push([this, weak = std::weak_ptr(connection), accept = on_accept_] {
    const auto connection = weak.lock();
    if (connection == nullptr) return true;  // Both are dead.
    auto link =
        std::make_shared<SimulatedLink>(connection, 1, peer_address(connection->ends[0].process));
    auto handlers = accept(link, net::schema::Role::WORKER);
    if (!connection->ends[1].closed) connection->ends[1].handlers = std::move(handlers);
    return true;
  });
  next->on_done(std::make_shared<SimulatedLink>(connection, 0, world_.name(server_)));
  connection->ends[0].handlers = std::move(next->handlers);
}

void Network::on_killed(ProcessId process, bool silent) {
  if (process == server_) {
    server_ = 0;
    on_accept_ = nullptr;
  }
  for (const auto& connection : connections_) {
    for (size_t side = 0; side < 2; ++side) {
      auto& end = connection->ends[side];
      if (end.process != process || end.closed) continue;
      end.closed = true;
      end.handlers = {};
      if (silent) {
        end.out->go_silent();
      } else {
        connection->push_end(side, absl::UnavailableError("connection reset by peer"));
      }
    }
  }
  std::erase_if(connections_,
                [](const auto& each) { return each->ends[0].closed && each->ends[1].closed; });
  std::erase_if(channels_, [](const auto& each) { return each.expired(); });
}

void Network::pump_all() {
  for (const auto& weak : std::vector(channels_)) {
    if (auto channel = weak.lock()) channel->pump();
  }
}

void Network::part(ProcessId a, ProcessId b, bool lasts) {
  part_one_way(a, b, lasts);
  part_one_way(b, a, lasts);
}

void Network::part_one_way(ProcessId from, ProcessId to, bool lasts) {
  Cut& cut = cuts_.try_emplace({from, to}, Cut{world_.now_us(), false}).first->second;
  cut.lasts = cut.lasts || lasts;
}

bool Network::is_parted(ProcessId a, ProcessId b) const {
  return cuts_.contains({a, b}) || cuts_.contains({b, a});
}

bool Network::carries(ProcessId from, ProcessId to) const {
  if (cuts_.contains({from, to})) return false;
  const auto back = cuts_.find({to, from});
  return back == cuts_.end() || world_.now_us() < back->second.since_us + kUnacknowledgedUs;
}

void Network::heal(ProcessId a, ProcessId b) {
  std::erase_if(cuts_, [&](const auto& each) {
    return std::minmax(each.first.first, each.first.second) == std::minmax(a, b) &&
           !each.second.lasts;
  });
  pump_all();
}

void Network::heal_all() {
  std::erase_if(cuts_, [](const auto& each) { return !each.second.lasts; });
  pump_all();
}

void Network::half_open(ProcessId process) {
  for (const auto& connection : connections_) {
    for (size_t side = 0; side < 2; ++side) {
      if (connection->ends[side].process != process) continue;
      connection->ends[side].out->go_silent();
      connection->ends[1 - side].out->go_silent();
    }
  }
}

void Network::mute(ProcessId process, bool hears_nothing) {
  for (const auto& connection : connections_) {
    for (size_t side = 0; side < 2; ++side) {
      if (connection->ends[side].process != process) continue;
      connection->ends[hears_nothing ? 1 - side : side].out->go_silent();
    }
  }
}

void Network::reset(ProcessId process) {
  for (const auto& connection : std::vector(connections_)) {
    const auto& ends = connection->ends;
    if (ends[0].process != process && ends[1].process != process) continue;
    for (size_t side = 0; side < 2; ++side) {
      if (ends[side].out) ends[side].out->go_silent();  // What is on its way is lost.
      connection->end_side(side, absl::UnavailableError("connection reset by peer"));
    }
  }
}

void Network::wind_up() {
  on_accept_ = nullptr;
  for (const auto& connection : connections_) {
    for (auto& end : connection->ends) {
      end.closed = true;
      end.handlers = {};
      if (end.out) end.out->go_silent();
    }
  }
  connections_.clear();
}

}  // namespace skein::sim
