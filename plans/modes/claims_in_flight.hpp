#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/modes/claim_pool.hpp"

namespace skein::plans {

/// The claims that one pipeline replica trains on, and how far each of its stages is with them.
/// Stages report the claims in the order in which they were given, each for itself; a claim is done
/// when all have reported it. Not thread-safe.
class ClaimsInFlight {
 public:
  struct Claim {
    SampleClaim samples;
    std::map<uint32_t, ReadyReport> reports;  // By stage.
  };
  /// `stages`  > 0
  explicit ClaimsInFlight(uint32_t stages) : asked_(stages), reported_(stages) {}

  bool empty() const { return claims_.empty(); }
  size_t size() const { return claims_.size(); }
  /// Iterations that all stages have reported: the number of the oldest claim.
  uint64_t step() const { return step_; }
  /// The number of the claim that is given next.
  uint64_t next_step() const { return step_ + claims_.size(); }
  const std::deque<Claim>& claims() const { return claims_; }

  void give(const SampleClaim& samples) { claims_.push_back({samples, {}}); }
  /// The pipeline replica is lost.
  void clear() { claims_.clear(); }

  /// The claim that the stage reports next; there may be none of that number yet.
  uint64_t awaited(uint32_t stage) const { return reported_[stage]; }
  bool awaits(uint32_t stage) const { return awaited(stage) < next_step(); }
  /// The stage asks for a group for the claim that it reports next. Its number.
  uint64_t ask(uint32_t stage) { return asked_[stage]++; }
  bool has_asked(uint32_t stage) const { return asked_[stage] > reported_[stage]; }
  /// What the stage has asked for a group for last. Empty: that claim is done by all, or it has
  /// asked for none.
  std::optional<SampleClaim> asked_for(uint32_t stage) const;
  /// The claim that the report is of; `awaits(stage)`.
  const Claim& report(uint32_t stage, const ReadyReport& report);
  /// All stages have reported the oldest claim.
  bool is_oldest_done() const;
  /// Takes it out; there is one.
  Claim end_oldest();

  /// Those of a pipeline replica that is not lost.
  void check_invariants() const;

 private:
  uint64_t step_ = 0;
  std::deque<Claim> claims_;        // From `step_` on.
  std::vector<uint64_t> asked_;     // [stages], iterations; none more than one ahead of reports.
  std::vector<uint64_t> reported_;  // [stages], iterations; in [step_, step_ + claims_.size()].
};

}  // namespace skein::plans
