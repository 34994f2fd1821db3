#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/control/control_link.hpp"

namespace skein::actors {

/// Keeps what is sent. Used by one thread, that of the test scheduler.
class RecordingLink : public net::ControlLink {
 public:
  using Body = net::schema::Envelope::Body;

  void send(net::ControlMessage message) override { sent_.push_back(std::move(message)); }
  void close() override { closed_ = true; }
  const std::string& peer_address() const override { return address_; }

  bool closed() const { return closed_; }
  /// Bodies of one kind, in order.
  std::vector<Body::Reader> bodies(Body::Which kind) const {
    std::vector<Body::Reader> found;
    for (const net::ControlMessage& message : sent_) {
      const Body::Reader body = (*message).getBody();
      if (body.which() == kind) found.push_back(body);
    }
    return found;
  }
  /// Kinds of all messages, in order.
  std::vector<int> kinds() const {
    std::vector<int> kinds;
    for (const net::ControlMessage& message : sent_) kinds.push_back((*message).getBody().which());
    return kinds;
  }

 private:
  std::vector<net::ControlMessage> sent_;
  std::string address_ = "127.0.0.1:1";
  bool closed_ = false;
};

}  // namespace skein::actors
