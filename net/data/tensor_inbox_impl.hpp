#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "net/data/plan_secrets.hpp"
#include "net/data/tensor_inbox.hpp"
#include "net/data/tensor_stream.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {

/// The inbox of a data plane. `place`, `wake` and the members belong to the loop's thread.
class KjTensorInbox final : public TensorInbox, public std::enable_shared_from_this<KjTensorInbox> {
 public:
  /// `secrets`: those of the data plane, which forgets with the inbox; the loop's thread.
  KjTensorInbox(KjEventLoop& loop, std::shared_ptr<PlanSecrets> secrets)
      : loop_(loop), secrets_(std::move(secrets)) {}
  ~KjTensorInbox() noexcept override = default;

  void open(StreamSpec stream) override;
  void close(uint64_t generation, uint32_t receiver, schema::TensorKind kind) override;
  void close_before(uint64_t generation) override;

  /// Where an announced payload goes: the stream and memory, or neither if it is to be skipped, or
  /// an error if the peer is wrong, or if there is no memory for it.
  struct Place {
    std::shared_ptr<TensorStream> stream;
    std::span<float> memory;
    absl::Status status;
  };
  /// Waits until the stream is open and has room. Loop's thread.
  kj::Promise<Place> place(TensorStream::Rows rows);
  /// A payload is there. Loop's thread.
  void on_arrived();

 private:
  using StreamName = std::tuple<uint64_t, uint32_t, schema::TensorKind>;

  void wake_later();
  void wake();

  KjEventLoop& loop_;
  std::map<StreamName, std::shared_ptr<TensorStream>> streams_;
  const std::shared_ptr<PlanSecrets> secrets_;
  uint64_t floor_ = 1;  // Generations below it are closed, but for 0.
  std::vector<kj::Own<kj::PromiseFulfiller<void>>> waiting_;
  bool is_contested_ = false;  // Some wait for what another connection has announced first.
};

}  // namespace skein::net
