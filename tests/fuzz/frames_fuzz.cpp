// Bytes from a socket: the head of a frame, then a message of any of the three types.
#include <cstring>
#include <span>

#include "net/control/envelope.hpp"
#include "net/control/frame.hpp"
#include "net/control/wire.hpp"
#include "net/data/tensor_stream.hpp"
#include "net/schema/tensor.capnp.h"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {

void run_one(const uint8_t* data, size_t bytes) {
  net::FrameHead head;
  if (bytes < sizeof(head)) return;
  std::memcpy(&head, data, sizeof(head));
  const bool accepted = net::check_frame_head(head).ok();
  if (accepted && size_t{head.words} * 8 > net::kControlBytesMax) __builtin_trap();
  // The body is tried whatever its head says, so that mutations of it are not lost.
  const auto body = std::as_bytes(std::span(data, bytes)).subspan(sizeof(head));
  (void)net::ControlMessage::parse(body);
  (void)net::Wire<net::schema::Hello>::parse(body);
  auto header = net::Wire<net::schema::TensorHeader>::parse(body);
  if (!header.ok()) return;
  const auto fields = **header;
  net::TensorInbox::StreamSpec spec;
  spec.row_begin = 2;
  spec.row_count = 4;
  spec.row_floats = 8;
  const net::TensorStream stream(spec, [] {});
  net::TensorStream::Rows rows;
  rows.begin = fields.getRowBegin();
  rows.count = fields.getRowCount();
  rows.bytes = fields.getPayloadBytes();
  // What is accepted must lie inside the tensor.
  const bool inside = uint64_t{rows.begin} + rows.count <= 6 && rows.begin >= 2;
  if (stream.check(rows).ok() && !inside) __builtin_trap();
}

std::vector<std::vector<uint8_t>> seeds() {
  auto framed = [](std::span<const std::byte> message) {
    const net::FrameHead head = net::frame_head(message);
    std::vector<uint8_t> bytes(sizeof(head) + message.size());
    std::memcpy(bytes.data(), &head, sizeof(head));
    std::memcpy(bytes.data() + sizeof(head), message.data(), message.size());
    return bytes;
  };
  const auto saved = net::make_envelope({}, [](auto body) {
    auto files = body.initShardSaved().initFiles(2);
    files[0].setName("model");
    files[1].initTensors(2).set(0, "wte");
  });
  const auto ready = net::make_envelope({}, [](auto body) { body.initReady().setLossSum(1.5); });
  capnp::MallocMessageBuilder message;
  auto header = message.initRoot<net::schema::TensorHeader>();
  header.setRowBegin(2);
  header.setRowCount(4);
  header.setPayloadBytes(128);
  const auto tensor = net::Wire<net::schema::TensorHeader>::encode(message);
  return {framed(saved.bytes()), framed(ready.bytes()), framed(tensor.bytes())};
}

}  // namespace skein::fuzz
