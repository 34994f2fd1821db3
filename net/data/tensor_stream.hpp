#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "net/data/tensor_inbox.hpp"

namespace skein::net {

/// Memory aligned for vector loads.
struct FreeAligned {
  void operator()(float* memory) const;
};
using AlignedFloats = std::unique_ptr<float[], FreeAligned>;

/// The tensors of one stream that are incomplete or in use. Everything but `give_back` runs on the
/// loop's thread.
class TensorStream : public std::enable_shared_from_this<TensorStream> {
 public:
  TensorStream(TensorInbox::StreamSpec spec, std::function<void()> on_space);

  const TensorInbox::StreamSpec& spec() const { return spec_; }

  /// Rows that a header announces.
  struct Rows {
    TensorKey key;
    uint32_t begin = 0;
    uint32_t count = 0;
    uint64_t bytes = 0;
    bool is_bfloat16 = false;  // Each number takes two bytes then.
    plans::WorkerId sender;    // On whose connection they come; 0: the coordinator's.
    uint64_t secret = 0;       // That the connection has shown.
  };
  /// InvalidArgument   if the rows are no part of a tensor of this stream, the size is not theirs,
  /// or another worker may send them.
  absl::Status check(const Rows& rows) const;
  /// True if these rows came before: the payload is to be skipped.
  bool is_repeat(const Rows& rows) const;
  /// True if these rows are being read, from whomever.
  bool is_being_read(const Rows& rows) const;
  /// True if nobody reads these rows now, and their tensor has memory or may have it now.
  bool has_space(const Rows& rows) const;
  /// Where the payload goes. Call after the checks above; then `arrived` or `abandon` follows.
  /// ResourceExhausted   there is no memory for it: nothing has changed.
  absl::StatusOr<std::span<float>> reserve(const Rows& rows);
  /// The payload is there; a complete tensor goes to `on_tensor`.
  void arrived(const Rows& rows);
  /// The payload will not come: somebody else may send these rows.
  void abandon(const Rows& rows);

 private:
  // Invariant: no part is both being read and there; memory goes to nobody while a part is being
  // read.
  struct Partial {
    AlignedFloats memory;
    std::set<uint32_t> reading;  // By the first row of each part.
    std::set<uint32_t> there;
  };

  absl::StatusOr<AlignedFloats> take_memory();
  void give_back(AlignedFloats memory);

  TensorInbox::StreamSpec spec_;
  std::function<void()> on_space_;  // Any thread.
  std::map<TensorKey, Partial> partials_;
  std::map<TensorKey, uint64_t> completed_;  // Latest ones, to know repeats by.
  mutable std::mutex mutex_;
  std::vector<AlignedFloats> free_;  // Guarded by mutex_, like `held_`.
  uint32_t held_ = 0;                // Complete tensors whose handle lives.
};

}  // namespace skein::net
