#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/replica/replica_messages.hpp"
#include "net/data/data_plane.hpp"
#include "net/data/tensor_inbox.hpp"

namespace skein::actors {

/// Called on any thread with the input of a stage here.
using OnTensor = std::function<void(const net::TensorKey&, net::TensorHandle)>;

/// The output of a piece of work on its way to the neighbours. It leaves from the device's thread
/// as soon as it is made: the way over the Replica actor would cost the neighbour a wake of a
/// thread. A neighbouring stage of the same worker is given the memory itself: never more of it
/// than the schedule has micro-batches in flight there. Used by one thread at a time.
struct Outgoing {
  net::TensorHandle memory;                   // Null: there is no output, or nobody takes it.
  std::optional<net::TensorKey> handed_over;  // To the neighbour that is here; then no `parts`.
  OnTensor on_tensor;                         // Takes that.
  std::shared_ptr<net::DataPlane> plane;
  std::vector<std::pair<std::string, net::DataPlane::Rows>> parts;  // With their addresses.
  /// What goes along to the other end of the pipeline, of an embedding that is tied to the head.
  struct Tied {
    net::TensorKey key;
    net::TensorHandle values;
    std::string address;  // Empty: that end is here.
    uint32_t sender = 0;
  };
  std::optional<Tied> tied;
  TensorSent sent;                                 // What is told of each transfer ...
  std::function<void(const TensorSent&)> on_sent;  // ... while a step is profiled; else null.

  void send(uint64_t now_us);

 private:
  void send_tied();
};

}  // namespace skein::actors
