#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/codec/envelope.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/plan/plan.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Who trains which samples, under local updates. What must hold:
///   claims    are of samples that nobody else has or has committed, unless that pipeline replica
///             is never heard again; a pipeline replica has as many as may be in flight, each of no
///             more samples than it has rows for
///   commits   of a pipeline replica follow its claims, each after the ready signals of all of its
///             replicas; with several claims in flight these signals are the commit
///   rounds    are journaled when every sample of them has been committed by one pipeline replica
///   updates   follow a commit, or with several claims in flight a claim, in order, and the worker
///             has read the samples of the claim, each once
/// Single-threaded.
class PipelineClaims {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  PipelineClaims(const plans::JobSpec& job, OnViolation on_violation);

  /// The plan begins with this step.
  void on_plan(const plans::Plan& plan, uint64_t first_step);
  void on_control(ProcessId to, const net::schema::Envelope::Reader& envelope, bool arrives);
  /// The steps from `first_step` on.
  void on_append(const plans::CommitRecord& record, uint64_t first_step);
  /// The process trains under another plan from now on.
  void on_prepared(ProcessId process, uint64_t generation);
  void on_read(ProcessId process, uint64_t sample) { readers_[process].samples.insert(sample); }
  /// What the process has trained on; none if that is not known any more.
  std::optional<plans::SampleClaim> on_update(ProcessId process);
  /// First samples of the claims of the round in progress.
  std::set<uint64_t> claims() const;

 private:
  /// A range that is claimed, by its first sample.
  struct Claim {
    uint32_t pipeline = 0;
    uint64_t step = 0;
    uint64_t count = 0;
    bool is_committed = false;  // Somebody was told so.
  };
  struct Pipeline {
    bool is_lost = false;
    std::map<uint64_t, plans::SampleClaim> claims;    // This plan's, by its own steps.
    std::map<uint64_t, std::set<uint32_t>> is_ready;  // Replicas by step.
    std::optional<uint64_t> committed;                // Its last step that was.
  };
  struct Reader {
    uint64_t generation = 0;
    std::deque<std::pair<uint32_t, uint64_t>>
        commits;                      // Pipeline replicas and steps, to be applied.
    std::multiset<uint64_t> samples;  // That no update has been made of.
  };

  void on_claim(uint32_t pipeline, uint64_t step, plans::SampleClaim claim);
  void on_commit(uint32_t pipeline, const net::schema::PipelineCommit::Reader& commit);
  bool is_done(const Claim& claim) const;
  std::optional<uint32_t> pipeline_of(uint32_t worker) const;
  /// How many of them the worker computes: the first stage, and the last one.
  size_t ends_of(uint32_t worker) const;

  const uint64_t batch_;
  const size_t claims_max_;  // In flight, for each pipeline replica.
  const OnViolation on_violation_;
  plans::Plan plan_;
  uint64_t next_sample_ = 0;                // First one that is in no journaled round.
  std::map<uint64_t, Claim> claims_;        // The round in progress.
  std::map<uint32_t, Pipeline> pipelines_;  // The plan's.
  std::map<ProcessId, Reader> readers_;
  std::map<ProcessId, uint32_t> workers_;  // Their numbers in `plan_`.
};

}  // namespace skein::sim
