#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/codec/envelope.hpp"
#include "tests/sim/processes.hpp"

namespace skein::sim {

/// Somebody who reaches the coordinator's port and says what is not so: reports of others, bad
/// input, state that it made up. What it says is well formed, and as likely to be believed as can
/// be: it knows the newest plan, its step and where its workers take tensors, and sends them
/// tensors in the names of others. Whoever is given a part in a plan goes, as nothing is promised
/// of one who stays. Single-threaded.
class Stranger {
 public:
  struct Options {
    bool joins = false;
    bool takes_number = false;  // Joins as somebody who was here; then it offers no state.
    bool is_deaf = false;       // Does not answer when all are to quiesce.
  };
  Stranger(Surroundings& around, std::string name, uint64_t seed, Options options);
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// Its lie about the input, which no other worker of a simulation says.
  static constexpr const char* kUnreadable = "the data is unreadable";

  ProcessId process() const { return process_; }
  void kill();

 private:
  void connect();
  void on_message(const net::Envelope& message);
  void join();
  void beat();
  void lie();
  net::ControlBody make_lie();
  /// A tensor that a replica of the plan waits for, in the name of who is to send it.
  void forge(const plans::Plan& plan);
  void forge_state(const plans::Plan& plan);
  void send_as(plans::WorkerId sender, plans::WorkerId receiver, net::DataPlane::Rows rows);
  std::vector<plans::InventoryItem> make_inventory();
  plans::WorkerId somebody() { return {static_cast<uint32_t>(rng_.below(8))}; }
  uint64_t newest_step() const;
  void send(const net::ControlBody& body);

  Surroundings& around_;
  const Options options_;
  plans::Rng rng_;
  ProcessId process_ = 0;
  int connections_ = 0;
  std::shared_ptr<net::ControlLink> link_;
  SimulatedPlane plane_;
  plans::WorkerId self_;
  bool had_part_ = false;
};

}  // namespace skein::sim
