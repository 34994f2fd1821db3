#include "plans/coordinator/planner_requests.hpp"

#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

CoordinatorDecisions PlannerRequests::send(Shared question) {
  in_flight_ = InFlight{++last_id_, question->what.index(), true};
  return {RequestPlan{last_id_, std::move(question)}};
}

CoordinatorDecisions PlannerRequests::ask(PlannerQuestion question) {
  const size_t kind = question.what.index();
  auto shared = std::make_shared<const PlannerQuestion>(std::move(question));
  if (!in_flight_) return send(std::move(shared));
  if (in_flight_->kind == kind) in_flight_->is_wanted = false;
  waiting_[kind] = std::move(shared);
  return {};
}

bool PlannerRequests::is_asked(size_t kind) const {
  return waiting_.contains(kind) ||
         (in_flight_ && in_flight_->is_wanted && in_flight_->kind == kind);
}

void PlannerRequests::forget_all() {
  waiting_.clear();
  if (in_flight_) in_flight_->is_wanted = false;
}

PlannerRequests::Answered PlannerRequests::on_ready(uint64_t id) {
  if (!in_flight_ || in_flight_->id != id) return {};
  Answered answered{true, in_flight_->is_wanted, {}};
  in_flight_.reset();
  if (waiting_.empty()) return answered;
  Shared next = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  answered.next = send(std::move(next));
  return answered;
}

void PlannerRequests::check_invariants() const {
  SKEIN_CHECK(waiting_.empty() || in_flight_) << "questions wait for a planner that is idle";
  SKEIN_CHECK(!in_flight_ || in_flight_->id == last_id_) << "an old question is in flight";
}

}  // namespace skein::plans
