#pragma once

#include <functional>
#include <memory>
#include <string>

#include <kj/async-io.h>

#include "net/control/hello.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {

/// Finds out whether the process that listened at an address is dead: then its machine itself
/// refuses to connect. That a connection breaks proves nothing, as any device between two processes
/// may break it, and a machine that does not answer may be cut off. A connection that is taken is
/// kept, and made again when it ends: one that lives, or is only stopped, may be killed, and one
/// that is ending closes what it has one by one. Lives on the loop's thread, until the process is
/// known to be dead or `patience_seconds` are over.
class ListenerCheck : public std::enable_shared_from_this<ListenerCheck> {
 public:
  /// `on_gone` is called once, if it is dead; else never.
  ListenerCheck(KjEventLoop& loop, std::string address, double patience_seconds,
                std::function<void()> on_gone);

  /// `hello` is what a connection begins with.
  void start(Hello hello);

 private:
  void connect();
  void connect_after(kj::Duration pause);
  kj::Promise<void> greet(kj::Own<kj::AsyncIoStream> stream);
  void on_failed(const kj::Exception& why);

  KjEventLoop& loop_;
  const std::string address_;
  const kj::Duration patience_;
  const std::function<void()> on_gone_;
  Hello hello_;
  kj::Duration pause_;  // Before the next attempt, when a connection ends.
  kj::TimePoint give_up_at_ = kj::origin<kj::TimePoint>();
};

}  // namespace skein::net
