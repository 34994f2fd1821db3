#include "actors/worker/coordinator_session.hpp"

#include <utility>

#include "plans/base/units.hpp"

namespace skein::actors {

namespace {

/// Whoever has taken the coordinator's address is asked so often whether it is gone.
constexpr uint64_t kRetryUs = plans::kSecondUs;

}  // namespace

void CoordinatorSession::connect(double seconds) {
  if (is_joined_) silent_ = std::exchange(link_, nullptr);
  if (link_) link_->close();
  link_.reset();
  is_joined_ = false;
  retry_us_.reset();
  connect_(++attempt_, seconds);
}

void CoordinatorSession::connect_later(uint64_t now_us) {
  close();
  link_.reset();
  is_joined_ = false;
  ++attempt_;  // That the link closes is no news.
  on_lost(now_us);
  retry_us_ = now_us + kRetryUs;
}

void CoordinatorSession::on_opened(std::shared_ptr<net::ControlLink> link, uint64_t now_us) {
  link_ = std::move(link);
  last_answer_us_ = now_us;  // The answer to what follows may never come, as that to a heartbeat.
}

bool CoordinatorSession::on_joined(const std::string& run, plans::WorkerId self, uint64_t term,
                                   uint64_t now_us) {
  // The answer of an older life may come late, when its link has gone: that of the next one counts.
  if (is_joined_ && term <= head_.term) return false;
  is_joined_ = true;
  if (silent_) silent_->close();
  silent_.reset();
  if (run_.empty()) run_ = run;
  lost_at_us_.reset();
  head_.sender = self.value;
  head_.term = term;
  last_answer_us_ = now_us;
  return true;
}

bool CoordinatorSession::on_generation(uint64_t generation) {
  if (generation <= head_.generation) return false;
  head_.generation = generation;
  return true;
}

void CoordinatorSession::close() {
  if (link_) link_->close();
  if (silent_) silent_->close();
  silent_.reset();
}

}  // namespace skein::actors
