#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/control/control_link.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// How a connection's bytes travel.
struct NetworkOptions {
  uint64_t delay_us_min = 50;
  uint64_t delay_us_max = 2'000;
  /// Some rounds are late: retransmissions.
  double late_chance = 0.01;
  uint64_t late_us_max = 250'000;
  /// A tensor, whose bytes take their time.
  uint64_t tensor_us_max = 40'000;
};

/// One direction of a connection: rounds arrive in order, each after its delay, and not while
/// there is a partition. Like TCP, it holds what it cannot deliver.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// Called when a round has arrived; false: the receiver does not take it yet, `pump` again.
  using Round = std::function<bool()>;

  Channel(World& world, class Network& network, ProcessId from, ProcessId to)
      : world_(world), network_(network), from_(from), to_(to) {}

  /// `extra_us` is what its bytes take.
  void push(Round round, uint64_t extra_us = 0);
  /// Delivers what is due.
  void pump();
  /// From now on nothing arrives, and nobody is told.
  void go_silent();
  bool is_silent() const { return silent_; }
  ProcessId from() const { return from_; }
  ProcessId to() const { return to_; }

 private:
  World& world_;
  Network& network_;
  ProcessId from_;
  ProcessId to_;
  std::deque<std::pair<uint64_t, Round>> rounds_;  // By the time of arrival.
  uint64_t last_due_us_ = 0;
  bool silent_ = false;
  bool pumping_ = false;
};

/// A control connection between two processes.
struct Connection;

/// Control links between simulated processes, and what goes wrong with them. Messages are encoded
/// and parsed anew on their way. Single-threaded.
class Network {
 public:
  using OnAccept = net::ControlListener::OnAccept;
  using OnConnected = std::function<void(absl::StatusOr<std::shared_ptr<net::ControlLink>>)>;
  /// Sees each control message when it is sent, and when it arrives (`arrives`).
  using OnMessage = std::function<void(ProcessId from, ProcessId to,
                                       const net::ControlMessage& message, bool arrives)>;

  Network(World& world, NetworkOptions options) : world_(world), options_(options) {}

  void listen(ProcessId server, OnAccept on_accept);
  /// As `net::connect_control`, to the process that listens at that time.
  void connect(ProcessId client, double timeout_seconds, net::ControlLink::Handlers handlers,
               OnConnected on_done);
  /// What the server sees of where the process connects from; else it is a host of its own.
  void place(ProcessId process, std::string host) { hosts_[process] = std::move(host); }
  void watch(OnMessage on_message) { on_message_ = std::move(on_message); }

  /// The process is dead. Its peers' connections break; `silent`: its machine went with it, and
  /// nobody tells them.
  void on_killed(ProcessId process, bool silent);
  /// No bytes go between the processes until `heal`; `lasts`: as long as both live.
  void part(ProcessId a, ProcessId b, bool lasts = false);
  /// Bytes from `from` to `to` are lost until `heal`. Those of the other direction arrive, but as
  /// nobody hears that they do, they are soon sent again and again instead of what comes behind
  /// them; and no connection is made in either direction.
  void part_one_way(ProcessId from, ProcessId to, bool lasts = false);
  void heal(ProcessId a, ProcessId b);
  void heal_all();
  /// In one direction or in both.
  bool is_parted(ProcessId a, ProcessId b) const;
  /// Whether what is sent now arrives.
  bool carries(ProcessId from, ProcessId to) const;
  /// The control connections of a process are half open from now on: no end hears of the other.
  void half_open(ProcessId process);
  /// Nothing more comes out of the process's control connections, or (`hears_nothing`) into them,
  /// and what is swallowed is acknowledged: neither kernel notices.
  void mute(ProcessId process, bool hears_nothing);

  /// The control connections of a process break, and both ends hear of it.
  void reset(ProcessId process);

  /// Ends everything that is still open.
  void wind_up();

  uint64_t delay_us();
  uint64_t tensor_us() { return world_.between(0, options_.tensor_us_max); }
  void add(const std::shared_ptr<Channel>& channel) { channels_.push_back(channel); }
  const OnMessage& on_message() const { return on_message_; }
  World& world() { return world_; }

 private:
  struct Attempt {
    ProcessId client = 0;
    uint64_t deadline_us = 0;
    net::ControlLink::Handlers handlers;
    OnConnected on_done;
  };

  /// A direction in which bytes are lost.
  struct Cut {
    uint64_t since_us = 0;
    bool lasts = false;
  };

  std::string peer_address(ProcessId process) const;
  void attempt(const std::shared_ptr<Attempt>& attempt);
  void establish(const std::shared_ptr<Attempt>& attempt);
  void pump_all();

  World& world_;
  NetworkOptions options_;
  OnMessage on_message_;
  ProcessId server_ = 0;
  OnAccept on_accept_;
  std::map<std::pair<ProcessId, ProcessId>, Cut> cuts_;  // From whom to whom.
  std::map<ProcessId, std::string> hosts_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::weak_ptr<Channel>> channels_;
};

}  // namespace skein::sim
