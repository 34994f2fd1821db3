#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "net/schema/tensor.capnp.h"
#include "plans/base/ids.hpp"

namespace skein::net {

/// Names one tensor that a replica receives.
struct TensorKey {
  uint64_t generation = 0;
  uint32_t receiver = 0;  // Replica.
  schema::TensorKind kind = schema::TensorKind::ACTIVATION;
  uint64_t step = 0;
  uint32_t microbatch = 0;
  auto operator<=>(const TensorKey&) const = default;
};

/// Memory of one received tensor; goes back to its pool with the last copy of the handle, which may
/// be dropped by any thread.
using TensorHandle = std::shared_ptr<std::span<float>>;

/// Puts the rows that arrive from several senders together into whole tensors: the concatenation of
/// the pipeline's r1-to-r2 transfers happens in the memory into which the socket is read.
/// Thread-safe.
class TensorInbox {
 public:
  /// Tensors of one kind for one replica: rows [row_begin, row_begin + row_count) of `row_floats`
  /// floats each. Complete ones go to `on_tensor`, on the event loop's thread.
  struct StreamSpec {
    uint64_t generation = 0;
    uint32_t receiver = 0;
    schema::TensorKind kind = schema::TensorKind::ACTIVATION;
    uint32_t row_begin = 0;
    uint32_t row_count = 0;
    uint64_t row_floats = 0;
    /// The ranges of rows in which a tensor comes, exactly; they tile its rows in order. Empty: it
    /// comes in one.
    std::vector<std::pair<uint32_t, uint32_t>> parts;  // Begin and count.
    /// Who alone may send them: a worker, or 0, the coordinator. None: any of the run.
    std::optional<plans::WorkerId> sender;
    /// Tensors that may be incomplete or held by a handle at once; more wait in their sockets.
    uint32_t tensors_max = 0;
    std::function<void(const TensorKey&, TensorHandle)> on_tensor;
  };

  virtual ~TensorInbox() = default;
  virtual void open(StreamSpec stream) = 0;
  /// Forgets the stream; its handles stay valid.
  virtual void close(uint64_t generation, uint32_t receiver, schema::TensorKind kind) = 0;
  /// Forgets the streams of every generation below this one but 0; their handles stay valid.
  virtual void close_before(uint64_t generation) = 0;
};

}  // namespace skein::net
