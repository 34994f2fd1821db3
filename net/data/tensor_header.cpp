#include "net/data/tensor_header.hpp"

namespace skein::net {

Wire<schema::TensorHeader> make_tensor_header(const DataPlane::Rows& rows, bool is_bfloat16) {
  capnp::MallocMessageBuilder message;
  auto header = message.initRoot<schema::TensorHeader>();
  header.setGeneration(rows.key.generation);
  header.setSender(rows.sender);
  header.setReceiver(rows.key.receiver);
  header.setKind(rows.key.kind);
  header.setStep(rows.key.step);
  header.setMicrobatch(rows.key.microbatch);
  header.setRowBegin(rows.row_begin);
  header.setRowCount(rows.row_count);
  header.setPayloadBytes(rows.payload.size_bytes() / (is_bfloat16 ? 2 : 1));
  header.setIsBfloat16(is_bfloat16);
  return Wire<schema::TensorHeader>::encode(message);
}

}  // namespace skein::net
