#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/codec/envelope.hpp"
#include "net/control/control_link.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

/// A worker's connection to the coordinator: links come and go, and who the worker is there stays.
/// Owned by one actor; touched only from its handlers.
class CoordinatorSession {
 public:
  /// `connect` opens a link, trying for so many seconds, and says which attempt it was for.
  explicit CoordinatorSession(std::function<void(uint64_t attempt, double seconds)> connect)
      : connect_(std::move(connect)) {}

  /// Gives up the link, if there is one, and connects anew. One by which we were a member is closed
  /// when the next one has taken its place: closed before, we would be lost, and what we hold, too.
  void connect(double seconds);
  /// The link to the coordinator has closed.
  void on_lost(uint64_t now_us) {
    if (!lost_at_us_) lost_at_us_ = now_us;
  }
  /// Connects anew after a pause: somebody else answers where the coordinator should be.
  void connect_later(uint64_t now_us);
  /// The pause is over.
  bool is_due(uint64_t now_us) const { return retry_us_ && now_us >= *retry_us_; }
  /// How long we have been without our coordinator; 0 for those who never had one.
  double lost_us(uint64_t now_us) const {
    return lost_at_us_ ? static_cast<double>(now_us - *lost_at_us_) : 0;
  }
  bool is_current(uint64_t attempt) const { return attempt == attempt_; }
  void on_opened(std::shared_ptr<net::ControlLink> link, uint64_t now_us);
  /// The coordinator of `run` has taken us in; false: it had already said so on this link.
  bool on_joined(const std::string& run, plans::WorkerId self, uint64_t term, uint64_t now_us);
  void on_answer(uint64_t now_us) { last_answer_us_ = now_us; }
  /// A generation that the coordinator has told us of; false: it is not newer than the last one.
  bool on_generation(uint64_t generation);
  void close();

  bool has_link() const { return link_ != nullptr; }
  const std::shared_ptr<net::ControlLink>& link() const { return link_; }
  bool is_joined() const { return is_joined_; }  // On this link.
  bool was_member() const { return head_.sender != 0; }
  /// The run that we serve: that of the first coordinator that took us in; empty: none yet.
  const std::string& run() const { return run_; }
  const net::EnvelopeHead& head() const { return head_; }
  plans::WorkerId self() const { return plans::WorkerId{head_.sender}; }
  uint64_t generation() const { return head_.generation; }  // The newest that we have seen.
  /// Nothing has been heard on the link for longer than `lease_us`: it is half open.
  bool is_silent(uint64_t now_us, double lease_us) const {
    return link_ && static_cast<double>(now_us - last_answer_us_) > lease_us;
  }
  /// Nothing is sent while there is no link.
  void tell(const net::ControlBody& body) const {
    if (link_) link_->send(net::encode(head_, body));
  }

 private:
  const std::function<void(uint64_t attempt, double seconds)> connect_;
  uint64_t attempt_ = 0;                      // Links of older ones are closed.
  std::shared_ptr<net::ControlLink> link_;    // Null while there is none.
  std::shared_ptr<net::ControlLink> silent_;  // The one before, until we are a member again.
  bool is_joined_ = false;                    // Only with a link.
  uint64_t last_answer_us_ = 0;               // Valid with a link.
  std::string run_;                           // Once set it stays.
  std::optional<uint64_t> lost_at_us_;        // Since when we look for our coordinator.
  std::optional<uint64_t> retry_us_;          // Only without a link.
  net::EnvelopeHead head_;                    // Neither term nor generation ever goes back.
};

}  // namespace skein::actors
