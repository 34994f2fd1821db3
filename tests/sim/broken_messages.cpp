#include "tests/sim/broken_messages.hpp"

#include <utility>

#include "net/control/envelope.hpp"

namespace skein::sim {
namespace {

using Envelope = net::schema::Envelope;

/// The same message with another body; `change` gets the builder of a copy.
template <class Change>
net::ControlMessage changed(const Envelope::Reader& envelope, Change change) {
  capnp::MallocMessageBuilder message;
  message.setRoot(envelope);
  change(message.getRoot<Envelope>().getBody());
  return net::ControlMessage::encode(message);
}

}  // namespace

std::optional<net::ControlMessage> BrokenMessages::receive(net::ControlMessage message) {
  const auto envelope = *message;
  const auto body = envelope.getBody();
  if (body.isCommit() || body.isHalt()) is_done_ = false;
  if (body.isLease() && first_sample_ == 0) first_sample_ = body.getLease().getFirstSample();
  const bool is_returned = body.isLease() && is_done_;
  if (body.isColumnCommit()) is_done_ = body.getColumnCommit().getNextCount() == 0;
  if (envelope.getReceiver() % 2 == 0) return message;
  if (mutation_ == Mutation::kDissolveSkipped && body.isDissolve()) return std::nullopt;
  if (mutation_ == Mutation::kReturnedLost && is_returned) return std::nullopt;
  if (mutation_ == Mutation::kSumSkewed && body.isCombine()) {
    return changed(envelope, [](auto copy) {
      auto first = copy.getCombine().getMembers()[0];
      first.setWeight(first.getWeight() * 1.01);
    });
  }
  if (mutation_ == Mutation::kSamplesRepeated && body.isColumnCommit()) {
    return changed(envelope,
                   [this](auto copy) { copy.getColumnCommit().setNextSample(first_sample_); });
  }
  return message;
}

}  // namespace skein::sim
