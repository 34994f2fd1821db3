#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "net/event_loop.hpp"

namespace skein::net {

/// In whole milliseconds.
inline kj::Duration to_duration(double seconds) {
  return static_cast<int64_t>(seconds * 1e3) * kj::MILLISECONDS;
}

/// The event loop behind `EventLoop`: every one is of this class. The members below `post` may be
/// used on the loop's thread only.
class KjEventLoop final : public EventLoop {
 public:
  KjEventLoop();
  ~KjEventLoop() noexcept override;

  void post(std::function<void()> task) override;

  kj::AsyncIoContext& io() { return *io_; }
  kj::Network& network() { return io_->provider->getNetwork(); }
  kj::Timer& timer() { return io_->provider->getTimer(); }
  /// Microseconds on the timer's clock, from an unknown start.
  uint64_t now_us() {
    return static_cast<uint64_t>((timer().now() - kj::origin<kj::TimePoint>()) / kj::MICROSECONDS);
  }
  /// A connection to "host:port", which the kernel tries for minutes.
  kj::Promise<kj::Own<kj::AsyncIoStream>> connect(const std::string& address) {
    return network().parseAddress(address).then([](kj::Own<kj::NetworkAddress> parsed) {
      auto connected = parsed->connect();
      return connected.attach(kj::mv(parsed));
    });
  }
  /// Runs a promise to its end in the background; a failure is swallowed: handle it before.
  void run(kj::Promise<void> promise) { tasks_->add(kj::mv(promise)); }

  /// Owns an object of the loop's thread with handles that any thread may drop: it is destroyed on
  /// the loop's thread.
  template <class Object, class... Arguments>
  std::shared_ptr<Object> make_shared_here(Arguments&&... arguments) {
    auto object = std::make_unique<Object>(std::forward<Arguments>(arguments)...);
    return std::shared_ptr<Object>(object.release(), [this](Object* raw) {
      // The task may be dropped unrun when the loop ends: then its capture does the work.
      auto holder = std::make_shared<std::unique_ptr<Object>>(raw);
      post([holder] { holder->reset(); });
    });
  }

  static KjEventLoop& of(EventLoop& loop) { return static_cast<KjEventLoop&>(loop); }

 private:
  class Ignore final : public kj::TaskSet::ErrorHandler {
    void taskFailed(kj::Exception&&) override {}
  };

  void thread_main(std::function<void(bool)> started);
  kj::Promise<void> serve(kj::UnixEventPort::FdObserver& observer);
  void run_posted();

  int wake_fd_ = -1;  // An eventfd: written by `post`, read by the loop.
  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
  bool stopping_ = false;
  kj::AsyncIoContext* io_ = nullptr;
  Ignore ignore_;
  std::unique_ptr<kj::TaskSet> tasks_;
  kj::Own<kj::PromiseFulfiller<void>> stop_;
  std::thread thread_;
};

}  // namespace skein::net
