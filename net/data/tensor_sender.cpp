#include "net/data/tensor_sender.hpp"

#include <sys/socket.h>

#include <array>
#include <utility>
#include <vector>

#include "net/control/frame.hpp"
#include "net/data/bfloat16_payload.hpp"
#include "net/data/tensor_header.hpp"

namespace skein::net {
namespace {

constexpr auto kRetryInterval = 50 * kj::MILLISECONDS;
/// Asked of the kernel for each data connection: two activations of 1 MiB on their way.
constexpr int kSocketBufferBytes = 2 << 20;

kj::Exception cut_on_purpose() {
  return KJ_EXCEPTION(DISCONNECTED, "the link was dropped on purpose");
}

}  // namespace

void set_data_buffers(kj::AsyncIoStream& stream) {
  const int bytes = kSocketBufferBytes;
  auto failure = kj::runCatchingExceptions([&] {
    stream.setsockopt(SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    stream.setsockopt(SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  });
  (void)failure;  // The kernel's default does as well, only slower.
}

void TensorSender::start(Hello hello, double connect_timeout_seconds) {
  hello_ = std::move(hello);
  deadline_ = loop_.timer().now() + to_duration(connect_timeout_seconds);
  connect();
}

void TensorSender::push(DataPlane::Rows rows) {
  if (ended_) return;
  queue_.push_back(std::move(rows));
  if (stream_ && !writing_) write_next();
}

void TensorSender::close() {
  ended_ = true;
  queue_.clear();
  canceler_.cancel("closed");  // A write must not outlive its stream.
  stream_ = nullptr;
}

void TensorSender::cut() {
  if (stream_) return lose(cut_on_purpose());
  canceler_.cancel("cut");  // An attempt to connect: it is made again.
}

void TensorSender::connect() {
  if (ended_) return;
  if (cuts_->is_cut(address_, loop_.now_us())) return on_refused(cut_on_purpose());
  loop_.run(canceler_.wrap(loop_.connect(address_))
                .then([self = shared_from_this()](kj::Own<kj::AsyncIoStream> stream) {
                  self->greet(kj::mv(stream));
                })
                .catch_([self = shared_from_this()](kj::Exception&& exception) {
                  self->on_refused(exception);
                }));
}

void TensorSender::on_refused(const kj::Exception& exception) {
  if (ended_) return;
  if (loop_.timer().now() >= deadline_) return lose(exception);
  loop_.run(
      canceler_.wrap(loop_.timer().afterDelay(kRetryInterval)).then([self = shared_from_this()] {
        self->connect();
      }));
}

void TensorSender::greet(kj::Own<kj::AsyncIoStream> stream) {
  if (ended_) return;
  stream_ = kj::mv(stream);
  set_no_delay(*stream_);
  set_data_buffers(*stream_);
  watch();
  auto hello = std::make_shared<HelloFrame>(hello_);
  writing_ = true;
  run_write(kj::evalNow([&] { return stream_->write(hello->pieces()); }), hello);
}

/// What is on its way is lost with the connection, and nothing need be written behind it that
/// fails.
void TensorSender::watch() {
  loop_.run(canceler_.wrap(stream_->whenWriteDisconnected())
                .then(
                    [weak = weak_from_this()] {
                      if (auto self = weak.lock())
                        self->lose(KJ_EXCEPTION(DISCONNECTED, "the connection was reset"));
                    },
                    [](kj::Exception&&) {}));
}

void TensorSender::write_next() {
  struct Outgoing {
    DataPlane::Rows rows;
    std::vector<uint16_t> halves;  // What goes instead of the rows' payload, if any.
    Wire<schema::TensorHeader> header;
    FrameHead head;
    std::array<kj::ArrayPtr<const kj::byte>, 3> pieces;
  };
  // Probes measure the connection: all of their bytes go.
  std::vector<uint16_t> halves;
  if (queue_.front().key.generation != 0) halves = as_bfloat16(queue_.front().payload);
  Wire<schema::TensorHeader> header = make_tensor_header(queue_.front(), !halves.empty());
  auto out = std::make_shared<Outgoing>(Outgoing{
      std::move(queue_.front()), std::move(halves), header, frame_head(header.bytes()), {}});
  queue_.pop_front();
  auto bytes_of = [](const void* data, size_t size) {
    return kj::arrayPtr(static_cast<const kj::byte*>(data), size);
  };
  out->pieces = {bytes_of(&out->head, sizeof(FrameHead)),
                 bytes_of(header.bytes().data(), header.bytes().size()),
                 out->halves.empty()
                     ? bytes_of(out->rows.payload.data(), out->rows.payload.size_bytes())
                     : bytes_of(out->halves.data(), out->halves.size() * sizeof(uint16_t))};
  *bytes_sent_ += out->pieces.back().size();
  writing_ = true;
  // A write to a peer that is gone may throw at once, instead of failing its promise.
  run_write(kj::evalNow([&] {
              return stream_->write(kj::arrayPtr(out->pieces.data(), out->pieces.size()));
            }),
            out);
}

void TensorSender::run_write(kj::Promise<void> written, std::shared_ptr<void> owner) {
  loop_.run(canceler_.wrap(kj::mv(written))
                .then(
                    [self = shared_from_this(), owner]() mutable {
                      owner.reset();
                      self->writing_ = false;
                      if (!self->ended_ && !self->queue_.empty()) self->write_next();
                    },
                    [self = shared_from_this(), owner](kj::Exception&& exception) {
                      self->lose(exception);
                    }));
}

void TensorSender::lose(const kj::Exception& exception) {
  if (ended_) return;
  const std::string why = exception.getDescription().cStr();
  close();
  if (on_lost_) on_lost_(address_, absl::UnavailableError(why));
}

}  // namespace skein::net
