#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

#include "actors/messages.hpp"
#include "actors/worker/prepare_io.hpp"
#include "net/data/tensor_inbox.hpp"

namespace skein::actors {

/// The Replica has stopped: nothing of it runs on the device or in a group any more.
struct ReplicasRetired {
  uint64_t generation = 0;
  uint64_t steps_done = 0;       // That its models have applied.
  bool has_global_state = true;  // Its models have applied no more than these.
  std::vector<PreparedReplica> replicas;
};

/// A tensor has been written to its socket; for the trace.
struct TensorSent {
  int32_t stage = 0;
  std::string slice;
  int32_t microbatch = 0;
  uint64_t start_us = 0;
  uint64_t step = 0;
};

/// A chunk of weights that are averaged with those of other replicas.
struct ChunkArrived {
  net::TensorKey key;
  net::TensorHandle chunk;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::ReplicasRetired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TensorSent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::ChunkArrived)
