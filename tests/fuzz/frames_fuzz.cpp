// Bytes from a socket: the head of a frame, then a message of any of the three types. A control
// message that decodes is within its bounds, so that it decodes again after it has been encoded.
#include <algorithm>
#include <cstring>
#include <span>

#include "net/control/frame.hpp"
#include "net/control/wire.hpp"
#include "net/data/tensor_stream.hpp"
#include "net/schema/tensor.capnp.h"
#include "tests/fuzz/target.hpp"
#include "tests/net/codec/random_messages.hpp"

namespace skein::fuzz {
namespace {

void check_control(std::span<const std::byte> body) {
  const auto message = net::ControlMessage::parse(body);
  if (!message.ok()) return;
  const auto decoded = net::decode(*message);
  if (!decoded.ok()) return;
  // Bytes are compared, as what is not a number equals nothing.
  const net::ControlMessage once = net::encode(decoded->head, decoded->body);
  const auto again = net::decode(once);
  if (!again.ok()) __builtin_trap();
  const net::ControlMessage twice = net::encode(again->head, again->body);
  const bool same = std::equal(once.bytes().begin(), once.bytes().end(), twice.bytes().begin(),
                               twice.bytes().end());
  if (!same) __builtin_trap();
}

}  // namespace

void run_one(const uint8_t* data, size_t bytes) {
  net::FrameHead head;
  if (bytes < sizeof(head)) return;
  std::memcpy(&head, data, sizeof(head));
  const bool accepted = net::check_frame_head(head).ok();
  if (accepted && size_t{head.words} * 8 > net::kControlBytesMax) __builtin_trap();
  // The body is tried whatever its head says, so that mutations of it are not lost.
  const auto body = std::as_bytes(std::span(data, bytes)).subspan(sizeof(head));
  check_control(body);
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
  rows.is_bfloat16 = fields.getIsBfloat16();
  // What is accepted must lie inside the tensor.
  const uint64_t number_bytes = rows.is_bfloat16 ? 2 : 4;
  const bool inside = uint64_t{rows.begin} + rows.count <= 6 && rows.begin >= 2 &&
                      rows.bytes <= uint64_t{rows.count} * 8 * number_bytes;
  if (stream.check(rows).ok() && !inside) __builtin_trap();
}

size_t short_run() { return 100'000; }

std::vector<std::vector<uint8_t>> seeds() {
  auto framed = [](std::span<const std::byte> message) {
    const net::FrameHead head = net::frame_head(message);
    std::vector<uint8_t> bytes(sizeof(head) + message.size());
    std::memcpy(bytes.data(), &head, sizeof(head));
    std::memcpy(bytes.data() + sizeof(head), message.data(), message.size());
    return bytes;
  };
  capnp::MallocMessageBuilder message;
  auto header = message.initRoot<net::schema::TensorHeader>();
  header.setRowBegin(2);
  header.setRowCount(4);
  header.setPayloadBytes(128);
  const auto tensor = net::Wire<net::schema::TensorHeader>::encode(message);
  std::vector<std::vector<uint8_t>> all = {framed(tensor.bytes())};
  header.setPayloadBytes(64);
  header.setIsBfloat16(true);
  all.push_back(framed(net::Wire<net::schema::TensorHeader>::encode(message).bytes()));
  net::RandomMessages random(1);
  for (size_t kind = 0; kind < std::variant_size_v<net::ControlBody>; ++kind) {
    all.push_back(framed(net::encode(random.head(), random.body(kind)).bytes()));
  }
  return all;
}

}  // namespace skein::fuzz
