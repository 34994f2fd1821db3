#pragma once

#include <memory>
#include <utility>

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
#include <caf/send.hpp>

#include "net/data/tensor_inbox.hpp"

namespace skein::actors {

/// A token for what the data plane holds: when the last copy of it is gone, on whatever thread, the
/// actor is sent `message`. It keeps the actor from nothing: one that has ended by then, or that
/// nobody refers to any more, hears nothing.
template <class Handle, class Message>
std::shared_ptr<const void> tell_when_gone(const Handle& to, Message message) {
  return {nullptr, [address = caf::actor_cast<caf::actor_addr>(to),
                    message = std::move(message)](const void*) {
            if (const auto there = caf::actor_cast<caf::strong_actor_ptr>(address)) {
              caf::anon_send(caf::actor_cast<Handle>(there), message);
            }
          }};
}

/// A copy that the data plane holds until it is sent, and such a token.
struct CopyUnderWay {
  net::TensorHandle copy;
  std::shared_ptr<const void> under_way;
};

}  // namespace skein::actors
