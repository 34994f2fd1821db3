#include "net/control/frame.hpp"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::net {
namespace {

FrameResult broken(const kj::Exception& exception) {
  return {absl::UnavailableError(exception.getDescription().cStr()), nullptr};
}

kj::Promise<FrameResult> read_body(kj::AsyncInputStream& stream, uint32_t words) {
  auto body = kj::heapArray<capnp::word>(words);
  auto target = body.asBytes();
  return stream.tryRead(target.begin(), target.size(), target.size())
      .then([body = kj::mv(body)](size_t got) mutable -> FrameResult {
        if (got < body.asBytes().size()) {
          return {absl::InvalidArgumentError(absl::StrCat("a frame ends after ", got, " of ",
                                                          body.asBytes().size(), " bytes")),
                  nullptr};
        }
        return {absl::OkStatus(), kj::mv(body)};
      });
}

}  // namespace

absl::Status check_frame_head(const FrameHead& head, uint64_t bytes_max) {
  if (head.magic != kFrameMagic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("what came is no Skein message (it begins with %08x, expected %08x)",
                        head.magic, kFrameMagic));
  }
  const uint64_t words_max = bytes_max / sizeof(capnp::word);
  if (head.words == 0 || head.words > words_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", head.words, " words; at most ", words_max));
  }
  return absl::OkStatus();
}

kj::Promise<FrameResult> read_frame(kj::AsyncInputStream& stream, uint64_t bytes_max) {
  auto head = kj::heap<FrameHead>();
  FrameHead* target = head.get();
  // A read from a peer that has reset the connection may throw at once, instead of failing its
  // promise: nobody would hear of that.
  return kj::evalNow([&] { return stream.tryRead(target, sizeof(FrameHead), sizeof(FrameHead)); })
      .then([&stream, bytes_max, head = kj::mv(head)](size_t got) -> kj::Promise<FrameResult> {
        if (got == 0) return FrameResult{absl::OkStatus(), nullptr};
        if (got < sizeof(FrameHead)) {
          return FrameResult{absl::InvalidArgumentError("a frame ends within its head"), nullptr};
        }
        if (absl::Status status = check_frame_head(*head, bytes_max); !status.ok()) {
          return FrameResult{std::move(status), nullptr};
        }
        return read_body(stream, head->words);
      })
      .catch_([](kj::Exception&& exception) { return broken(exception); });
}

FrameHead frame_head(std::span<const std::byte> message) {
  return {kFrameMagic, static_cast<uint32_t>(message.size() / sizeof(capnp::word))};
}

}  // namespace skein::net
