#pragma once

#include <functional>
#include <memory>
#include <string>

#include <kj/async-io.h>

#include "absl/status/status.h"
#include "net/control/hello.hpp"
#include "net/data/cut_links.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {

/// Notices that a peer cannot be reached any more, also when nothing is on its way to it: an idle
/// connection, whose other end the kernel asks every second whether it is there. A process that is
/// stopped or busy answers; only a network that loses packets, or a machine that is gone, does not.
/// What breaks is tried again; `on_unreachable` is told once, when that was in vain for about
/// `patience_seconds`, of which whole seconds are counted. Lives on the loop's thread.
class PeerWatch : public std::enable_shared_from_this<PeerWatch> {
 public:
  using OnUnreachable = std::function<void(const std::string& address, absl::Status)>;

  /// Peers in `cuts` are not connected to.
  PeerWatch(KjEventLoop& loop, std::string address, double patience_seconds,
            std::shared_ptr<const CutLinks> cuts, OnUnreachable on_unreachable);

  /// `hello` is what the connection begins with.
  void start(Hello hello);
  /// Nothing is told from now on.
  void close();
  /// Breaks the connection, as the network would.
  void cut();

 private:
  void connect();
  void connect_later();
  void greet(kj::Own<kj::AsyncIoStream> stream);
  void listen_for_end();
  void on_broken(const kj::Exception& why);
  void on_refused(const kj::Exception& why);

  KjEventLoop& loop_;
  const std::string address_;
  const kj::Duration patience_;
  const kj::Duration attempt_;  // The longest time that one attempt to connect takes.
  std::shared_ptr<const CutLinks> cuts_;
  const OnUnreachable on_unreachable_;
  Hello hello_;
  kj::Own<kj::AsyncIoStream> stream_;
  kj::byte end_ = 0;  // What is read: the peer never says anything.
  kj::TimePoint give_up_at_ = kj::origin<kj::TimePoint>();  // Unless it is reached before.
  bool ended_ = false;
  kj::Canceler canceler_;  // Of whatever is waited for.
};

}  // namespace skein::net
