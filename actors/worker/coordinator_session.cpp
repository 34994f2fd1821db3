#include "actors/worker/coordinator_session.hpp"

namespace skein::actors {

void CoordinatorSession::connect(double seconds) {
  link_.reset();
  is_joined_ = false;
  connect_(++attempt_, seconds);
}

void CoordinatorSession::on_opened(std::shared_ptr<net::ControlLink> link, uint64_t now_us) {
  link_ = std::move(link);
  last_answer_us_ = now_us;  // The answer to what follows may never come, as that to a heartbeat.
}

bool CoordinatorSession::on_joined(plans::WorkerId self, uint64_t term, uint64_t now_us) {
  if (is_joined_) return false;
  is_joined_ = true;
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
}

}  // namespace skein::actors
