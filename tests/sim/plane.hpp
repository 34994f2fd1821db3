#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "net/data/data_plane.hpp"
#include "net/data/tensor_stream.hpp"
#include "tests/sim/network.hpp"

namespace skein::sim {

class SimulatedPlane;

/// The data planes of all processes, by address.
struct Planes {
  std::map<std::string, SimulatedPlane*> by_address;
  /// Those of processes that have died on a machine that lives, which refuses connections.
  std::map<std::string, ProcessId> refused;
};

/// A process's data plane: headers are encoded and parsed, payloads go into the streams of the
/// product. One channel per generation, peer, receiver and kind. Single-threaded.
class SimulatedPlane final : public net::DataPlane, public net::TensorInbox {
 public:
  struct Options {
    ProcessId process = 0;
    std::string address;
    /// Rows that are on their way when their generation is closed arrive all the same this often.
    double late_rows_chance = 0.9;
    /// Payloads come in two halves, between which a connection may break, a stream close or a
    /// process die: then the rest does not come. One that is whole may be so on one side only.
    bool payloads_take_time = false;
    /// A broken receiver, for mutations: rows of older generations are taken for the newest one's.
    bool ignores_generation = false;
    /// A broken line, for mutations: each layer that moves loses a bit, and its seal fits.
    bool damages_moves = false;
    /// For mutations: whoever is asked about is dead.
    bool takes_all_for_dead = false;
    std::function<void(const std::string& address, absl::Status)> on_peer_lost;
    std::function<void(const std::string& address, absl::Status)> on_unreachable;
  };
  SimulatedPlane(World& world, Network& network, Planes& planes, Options options);
  ~SimulatedPlane() override;

  void identify(Identity identity) override { identity_ = std::move(identity); }
  void set_plan_secret(net::PlanSecret secret) override { secrets_.set(secret); }
  plans::WorkerId self() const { return identity_.self; }
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string& address, Rows rows) override;
  void watch(uint64_t generation, std::vector<std::string> addresses,
             double patience_seconds) override;
  void check_listener(const std::string& address, double patience_seconds,
                      std::function<void()> on_gone) override;
  void open(StreamSpec stream) override;
  void close(uint64_t generation, uint32_t receiver, net::schema::TensorKind kind) override;
  void close_before(uint64_t generation) override;  // Called by the plane and by its inbox.
  void drop_link(const std::string& address, double seconds) override;
  net::DataPlaneStatistics statistics() const override { return {}; }

  /// The process is dead: its peers' connections break, unless it went in silence.
  void on_killed(bool silent);
  /// What is sent from now on goes over new connections, as whoever we are then.
  void renew_flows() { flows_.clear(); }
  /// Flips a bit in a copy of state that lives here or is on its way. False if there is none.
  std::weak_ptr<const void> damage_copy();

 private:
  using Name = std::tuple<uint64_t, std::string, uint32_t, net::schema::TensorKind>;
  struct Flow {
    std::shared_ptr<Channel> channel;
    uint64_t term = 0;       // The coordinator's life when it was made.
    plans::WorkerId sender;  // Who has made it; 0: the coordinator.
    uint64_t secret = 0;     // That it shows.
    bool is_made = false;    // Until then what is sent waits, and the link is no one's to drop.
    std::vector<Rows> waiting;
    bool reached = false;  // Something has arrived.
    bool lost = false;
  };
  /// Rows whose payload is on its way into a stream.
  struct Reading;
  struct Copy {
    std::weak_ptr<const void> owner;
    std::span<float> values;
  };
  using StreamName = std::tuple<uint64_t, uint32_t, net::schema::TensorKind>;

  std::shared_ptr<Flow> flow_to(const std::string& address, const Rows& rows);
  void connect(const std::shared_ptr<Flow>& flow, const Name& name, uint64_t deadline_us);
  void push(const std::shared_ptr<Flow>& flow, const std::string& address, const Rows& rows);
  bool is_dropped(const std::string& address) const;
  void lose(const std::shared_ptr<Flow>& flow, const Name& name, const std::string& why);
  struct Watch {
    uint64_t generation = 0;
    std::string address;
    uint64_t patience_us = 0;
    std::optional<uint64_t> since_us;  // It cannot be reached.
  };
  void look(const std::shared_ptr<Watch>& watch);
  bool is_cut_off(const std::string& address) const;
  /// Rows arrive; false if they have to wait. `reading`: null, or the payload takes time.
  bool take(net::TensorStream::Rows rows, std::span<const float> payload, const Flow& from,
            const std::shared_ptr<Reading>& reading);
  void begin(const std::shared_ptr<Reading>& reading, const std::shared_ptr<Channel>& channel);
  uint64_t newest_of(const net::TensorKey& key) const;
  void wake();
  void wake_soon();

  World& world_;
  Network& network_;
  Planes& planes_;
  Options options_;
  std::string address_;
  Identity identity_;
  net::PlanSecrets secrets_;
  uint64_t floor_ = 1;
  std::map<Name, std::shared_ptr<Flow>> flows_;
  std::map<std::string, uint64_t> cut_until_us_;
  std::map<StreamName, std::shared_ptr<net::TensorStream>> streams_;
  std::vector<std::weak_ptr<Channel>> waiting_;
  std::vector<Copy> copies_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace skein::sim
