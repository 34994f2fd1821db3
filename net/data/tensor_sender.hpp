#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <kj/async-io.h>

#include "absl/status/status.h"
#include "net/control/hello.hpp"
#include "net/data/cut_links.hpp"
#include "net/data/data_plane.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {

/// Asks the kernel for buffers that suit tensors; both ends of a data connection do.
void set_data_buffers(kj::AsyncIoStream& stream);

/// Sends the tensors of one stream to one peer, in order. Lives on the loop's thread.
class TensorSender : public std::enable_shared_from_this<TensorSender> {
 public:
  using OnLost = std::function<void(const std::string&, absl::Status)>;

  /// Payload bytes are added to `bytes_sent`; peers in `cuts` are not connected to.
  TensorSender(KjEventLoop& loop, std::string address,
               std::shared_ptr<std::atomic<uint64_t>> bytes_sent,
               std::shared_ptr<const CutLinks> cuts, OnLost on_lost)
      : loop_(loop),
        address_(std::move(address)),
        bytes_sent_(std::move(bytes_sent)),
        cuts_(std::move(cuts)),
        on_lost_(std::move(on_lost)) {}

  /// `hello` is what the connection begins with.
  void start(Hello hello, double connect_timeout_seconds);
  void push(DataPlane::Rows rows);
  /// Drops the connection and what waits for it, with no word to anybody.
  void close();
  /// Breaks the connection, if it is made, as the network would.
  void cut();
  /// True once the connection is lost or closed: what is pushed then goes nowhere.
  bool has_ended() const { return ended_; }

 private:
  void connect();
  void on_refused(const kj::Exception& exception);
  void greet(kj::Own<kj::AsyncIoStream> stream);
  void watch();
  void write_next();
  /// `owner` holds what is written until it is.
  void run_write(kj::Promise<void> written, std::shared_ptr<void> owner);
  void lose(const kj::Exception& exception);

  KjEventLoop& loop_;
  std::string address_;
  Hello hello_;
  std::shared_ptr<std::atomic<uint64_t>> bytes_sent_;
  std::shared_ptr<const CutLinks> cuts_;
  OnLost on_lost_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::deque<DataPlane::Rows> queue_;  // Bounded by the schedule: outputs of at most two steps.
  kj::TimePoint deadline_ = kj::origin<kj::TimePoint>();
  bool writing_ = false;
  bool ended_ = false;
  kj::Canceler canceler_;  // Of whatever is waited for.
};

}  // namespace skein::net
