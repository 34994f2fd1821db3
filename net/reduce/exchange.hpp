#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace skein::net {

/// Bytes for another rank; empty: nothing is sent.
struct Outgoing {
  uint32_t to = 0;
  std::span<const std::byte> bytes;
};
/// Where bytes of another rank are written; empty: nothing is received.
struct Incoming {
  uint32_t from = 0;
  std::span<std::byte> bytes;
};

/// How the members of a group move bytes, as the algorithms of this folder ask for it. One caller
/// at a time. Between two ranks, messages arrive in the order in which they were sent; a receiver
/// knows the size of what comes from its own arguments, so nothing a peer says makes it allocate.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t rank_count() const = 0;
  /// Sends and receives at the same time, and waits for both: rings and pairs cannot lock up.
  /// Unavailable or DeadlineExceeded if a peer is gone, or sent more or less.
  virtual absl::Status move(const Outgoing& out, const Incoming& in) = 0;
};

/// Some ranks of another exchange, numbered anew in the order given. Borrows the other one.
class PartOfExchange final : public Exchange {
 public:
  /// `members`: ranks of `whole`, in the same order on each of them; `position`: that of this rank.
  PartOfExchange(Exchange& whole, std::vector<uint32_t> members, uint32_t position)
      : whole_(whole), members_(std::move(members)), position_(position) {}

  uint32_t rank() const override { return position_; }
  uint32_t rank_count() const override { return static_cast<uint32_t>(members_.size()); }
  absl::Status move(const Outgoing& out, const Incoming& in) override {
    return whole_.move({members_[out.to], out.bytes}, {members_[in.from], in.bytes});
  }

 private:
  Exchange& whole_;
  std::vector<uint32_t> members_;
  uint32_t position_;
};

}  // namespace skein::net
