#include "net/data/tensor_inbox_impl.hpp"

#include <utility>

namespace skein::net {

void KjTensorInbox::open(StreamSpec stream) {
  loop_.post([self = shared_from_this(), stream = std::move(stream)]() mutable {
    const StreamName name{stream.generation, stream.receiver, stream.kind};
    auto on_space = [weak = self->weak_from_this()] {
      if (auto inbox = weak.lock()) inbox->wake_later();
    };
    self->streams_[name] = std::make_shared<TensorStream>(std::move(stream), on_space);
    self->wake();
  });
}

void KjTensorInbox::close(uint64_t generation, uint32_t receiver, schema::TensorKind kind) {
  loop_.post([self = shared_from_this(), name = StreamName{generation, receiver, kind}] {
    self->streams_.erase(name);
  });
}

void KjTensorInbox::close_before(uint64_t generation) {
  loop_.post([self = shared_from_this(), generation] {
    self->floor_ = std::max(self->floor_, generation);
    self->streams_.erase(self->streams_.lower_bound({1, 0, {}}),
                         self->streams_.lower_bound({self->floor_, 0, {}}));
    self->secrets_->forget_before(self->floor_);
    self->wake();
  });
}

kj::Promise<KjTensorInbox::Place> KjTensorInbox::place(TensorStream::Rows rows) {
  const TensorKey& key = rows.key;
  if (key.generation > 0 && key.generation < floor_) return Place{};
  const auto found = streams_.find({key.generation, key.receiver, key.kind});
  // A neighbour may be a message ahead of what opens our stream: it waits in its socket.
  if (found != streams_.end()) {
    const std::shared_ptr<TensorStream>& stream = found->second;
    if (rows.secret != secrets_->of(key.generation)) {
      return Place{nullptr, {}, absl::PermissionDeniedError("it does not know the plan's secret")};
    }
    if (absl::Status status = stream->check(rows); !status.ok()) return Place{nullptr, {}, status};
    if (stream->is_repeat(rows)) return Place{};
    if (stream->has_space(rows)) {
      const absl::StatusOr<std::span<float>> memory = stream->reserve(rows);
      if (!memory.ok()) return Place{nullptr, {}, memory.status()};
      return Place{stream, *memory, absl::OkStatus()};
    }
    is_contested_ = is_contested_ || stream->is_being_read(rows);
  }
  auto waiting = kj::newPromiseAndFulfiller<void>();
  waiting_.push_back(kj::mv(waiting.fulfiller));
  return waiting.promise.then([self = shared_from_this(), rows] { return self->place(rows); });
}

void KjTensorInbox::on_arrived() {
  if (std::exchange(is_contested_, false)) wake();
}

void KjTensorInbox::wake_later() {
  loop_.post([self = shared_from_this()] { self->wake(); });
}

void KjTensorInbox::wake() {
  std::vector<kj::Own<kj::PromiseFulfiller<void>>> waiting;
  waiting.swap(waiting_);
  for (auto& each : waiting) each->fulfill();
}

}  // namespace skein::net
