#pragma once

#include <cstdint>
#include <span>

#include <capnp/common.h>
#include <kj/async-io.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/control/wire.hpp"

namespace skein::net {

/// What stands before every Cap'n Proto message on a socket: 8 bytes, little-endian.
///   0..4  kFrameMagic: tells a frame of ours from garbage before anything is allocated
///   4..8  number of 8-byte words of the message that follows, 1 .. kControlBytesMax / 8
struct FrameHead {
  uint32_t magic = 0;
  uint32_t words = 0;
};
inline constexpr uint32_t kFrameMagic = 0x314e4b53;  // "SKN1"

/// A Hello or the header of a tensor: what may be sent before anybody knows who it is.
inline constexpr uint64_t kSmallFrameBytesMax = 4096;

/// Checks a head. InvalidArgument says what was found instead.
absl::Status check_frame_head(const FrameHead& head, uint64_t bytes_max = kControlBytesMax);

/// The next frame's message, of at most `bytes_max`; empty at the end of the stream. A broken
/// stream, a wrong head and a truncated frame are errors of the status. Runs on the loop's thread.
struct FrameResult {
  absl::Status status;
  kj::Array<capnp::word> words;
};
kj::Promise<FrameResult> read_frame(kj::AsyncInputStream& stream,
                                    uint64_t bytes_max = kControlBytesMax);

FrameHead frame_head(std::span<const std::byte> message);

}  // namespace skein::net
