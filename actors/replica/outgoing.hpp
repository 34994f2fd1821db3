#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/replica/replica_messages.hpp"
#include "net/data/data_plane.hpp"
#include "net/data/tensor_inbox.hpp"

namespace skein::actors {

/// The output of a piece of work on its way to the neighbours. It leaves from the device's thread
/// as soon as it is made: the way over the Replica actor would cost the neighbour a wake of a
/// thread. Used by one thread at a time.
struct Outgoing {
  net::TensorHandle memory;  // Null: there is no output, or nobody takes it.
  std::shared_ptr<net::DataPlane> plane;
  std::vector<std::pair<std::string, net::DataPlane::Rows>> parts;  // With their addresses.
  TensorSent sent;                                 // What is told of each transfer ...
  std::function<void(const TensorSent&)> on_sent;  // ... while a step is profiled; else null.

  void send(uint64_t now_us);
};

}  // namespace skein::actors
