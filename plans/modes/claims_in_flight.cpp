#include "plans/modes/claims_in_flight.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

const ClaimsInFlight::Claim& ClaimsInFlight::report(uint32_t stage, const ReadyReport& report) {
  SKEIN_CHECK(awaits(stage)) << "stage " << stage << " has reported no claim";
  Claim& claim = claims_[reported_[stage]++ - step_];
  asked_[stage] = std::max(asked_[stage], reported_[stage] - 1);
  claim.reports[stage] = report;
  return claim;
}

std::optional<SampleClaim> ClaimsInFlight::asked_for(uint32_t stage) const {
  const uint64_t asked = asked_[stage];
  if (asked <= step_ || asked > next_step()) return std::nullopt;
  return claims_[asked - 1 - step_].samples;
}

bool ClaimsInFlight::is_oldest_done() const {
  return !claims_.empty() && claims_.front().reports.size() == reported_.size();
}

ClaimsInFlight::Claim ClaimsInFlight::end_oldest() {
  SKEIN_CHECK(is_oldest_done()) << "claim " << step_ << " is not done";
  Claim done = std::move(claims_.front());
  claims_.pop_front();
  ++step_;
  return done;
}

void ClaimsInFlight::check_invariants() const {
  for (size_t stage = 0; stage < reported_.size(); ++stage) {
    const uint64_t reported = reported_[stage];
    SKEIN_CHECK(reported >= step_ && reported <= next_step())
        << "stage " << stage << " has reported " << reported << " of " << next_step();
    SKEIN_CHECK(asked_[stage] <= reported + 1)
        << "stage " << stage << " has asked " << asked_[stage] << " times";
  }
  for (size_t i = 0; i < claims_.size(); ++i) {
    for (const auto& [stage, report] : claims_[i].reports) {
      SKEIN_CHECK(report.step == step_ + i) << "a report of " << report.step;
    }
  }
}

}  // namespace skein::plans
