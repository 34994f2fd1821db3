#include "net/event_loop.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <future>
#include <utility>

#include <kj/exception.h>

#include "net/kj_event_loop.hpp"
#include "plans/base/check.hpp"

namespace skein::net {

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::start() {
  return std::unique_ptr<EventLoop>(std::make_unique<KjEventLoop>());
}

KjEventLoop::KjEventLoop() : wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  SKEIN_CHECK(wake_fd_ >= 0) << "no eventfd";
  std::promise<void> started;
  thread_ = std::thread([this, &started] { thread_main([&](bool) { started.set_value(); }); });
  started.get_future().wait();
}

KjEventLoop::~KjEventLoop() noexcept {
  post([this] { stop_->fulfill(); });
  thread_.join();
  close(wake_fd_);
}

void KjEventLoop::post(std::function<void()> task) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    wake = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (!wake) return;  // Whoever found the queue empty has woken the loop.
  const uint64_t one = 1;
  SKEIN_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one)) << "eventfd";
}

void KjEventLoop::thread_main(std::function<void(bool)> started) {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  io_ = &io;
  tasks_ = std::make_unique<kj::TaskSet>(ignore_);
  kj::UnixEventPort::FdObserver observer(io.unixEventPort, wake_fd_,
                                         kj::UnixEventPort::FdObserver::OBSERVE_READ);
  auto stop = kj::newPromiseAndFulfiller<void>();
  stop_ = kj::mv(stop.fulfiller);
  auto serving = serve(observer).eagerlyEvaluate([](kj::Exception&&) {});
  started(true);
  stop.promise.wait(io.waitScope);
  tasks_.reset();
  // Tasks own sockets and handlers: what was posted after the stop is dropped here, with the loop
  // still alive for the destructors.
  // Dropping one may post another: its own members that belong to this thread.
  for (bool dropped = true; dropped;) {
    std::deque<std::function<void()>> rest;
    {
      std::lock_guard lock(mutex_);
      rest.swap(posted_);
    }
    dropped = !rest.empty();
  }
}

kj::Promise<void> KjEventLoop::serve(kj::UnixEventPort::FdObserver& observer) {
  return observer.whenBecomesReadable().then([this, &observer] {
    uint64_t count = 0;  // One look empties it; nothing there is no error.
    (void)!read(wake_fd_, &count, sizeof(count));
    run_posted();
    return serve(observer);
  });
}

void KjEventLoop::run_posted() {
  std::deque<std::function<void()>> batch;
  {
    std::lock_guard lock(mutex_);
    batch.swap(posted_);
  }
  for (auto& task : batch) {
    // A socket's error that nobody caught concerns that socket, and must not end the loop of all.
    (void)kj::runCatchingExceptions([&] { task(); });
  }
}

}  // namespace skein::net
