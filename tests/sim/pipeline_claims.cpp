#include "tests/sim/pipeline_claims.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

std::string to_text(const plans::SampleClaim& claim) {
  return absl::StrCat("samples ", claim.first, "+", claim.count);
}

}  // namespace

PipelineClaims::PipelineClaims(const plans::JobSpec& job, OnViolation on_violation)
    : batch_(static_cast<uint64_t>(job.training.global_batch_size)),
      claims_max_(static_cast<size_t>(job.sync.claims_in_flight)),
      on_violation_(std::move(on_violation)) {}

void PipelineClaims::on_plan(const plans::Plan& plan, uint64_t first_step) {
  if (plan.generation <= plan_.generation) return;
  plan_ = plan;
  next_sample_ = first_step * batch_;
  claims_.clear();
  pipelines_.clear();
}

std::optional<uint32_t> PipelineClaims::pipeline_of(uint32_t worker) const {
  for (const plans::StagePlan& stage : plan_.stages) {
    for (size_t pipeline = 0; pipeline < stage.replicas.size(); ++pipeline) {
      if (stage.replicas[pipeline].worker.value == worker) return static_cast<uint32_t>(pipeline);
    }
  }
  return std::nullopt;
}

size_t PipelineClaims::ends_of(uint32_t worker) const {
  size_t ends = 0;
  for (const plans::StagePlan* stage : {&plan_.stages.front(), &plan_.stages.back()}) {
    for (const plans::ReplicaPlan& replica : stage->replicas) {
      ends += replica.worker.value == worker ? 1 : 0;
    }
    if (plan_.stages.size() == 1) break;
  }
  return ends;
}

void PipelineClaims::on_control(ProcessId to, const net::schema::Envelope::Reader& envelope,
                                bool arrives) {
  const auto body = envelope.getBody();
  const uint64_t generation = envelope.getGeneration();
  // A coordinator that has lost its journal gives other numbers, while the plan is at work still.
  if (envelope.getReceiver() != 0 && generation == plan_.generation) {
    workers_[to] = envelope.getReceiver();
  }
  const std::optional<uint32_t> pipeline = pipeline_of(envelope.getReceiver());
  // Who is cut off may go on for a while under the plan of before.
  if (arrives && readers_[to].generation == generation) {
    auto& commits = readers_[to].commits;
    if (body.isPipelineCommit()) {
      commits.emplace_back(pipeline.value_or(0), body.getPipelineCommit().getStep());
    } else if (body.isClaim() && claims_max_ > 1) {
      commits.emplace_back(pipeline.value_or(0), body.getClaim().getStep());
    }
  }
  if (generation != plan_.generation) return;
  if (arrives && body.isReady()) {
    const uint32_t replica = body.getReady().getReplica();
    const auto pipelines = static_cast<uint32_t>(plan_.stages.front().replicas.size());
    pipelines_[replica % pipelines].is_ready[body.getReady().getStep()].insert(replica);
  }
  if (arrives || !pipeline) return;
  if (body.isClaim()) {
    const auto claim = body.getClaim();
    on_claim(*pipeline, claim.getStep(), {claim.getFirstSample(), claim.getSampleCount()});
  } else if (body.isPipelineCommit()) {
    on_commit(*pipeline, body.getPipelineCommit());
  }
}

bool PipelineClaims::is_done(const Claim& claim) const {
  if (claim.is_committed) return true;
  // It was committed, and nobody was there any more to be told.
  const Pipeline& pipeline = pipelines_.at(claim.pipeline);
  const auto ready = pipeline.is_ready.find(claim.step);
  return ready != pipeline.is_ready.end() && ready->second.size() == plan_.stages.size();
}

void PipelineClaims::on_claim(uint32_t pipeline, uint64_t step, plans::SampleClaim claim) {
  Pipeline& own = pipelines_[pipeline];
  const auto [known, is_new] = own.claims.try_emplace(step, claim);
  const auto fail = [&](const auto&... why) {
    on_violation_(absl::StrCat(to_text(claim), " claimed to pipeline replica ", pipeline, why...));
  };
  if (!is_new) {  // It is for another worker of the pipeline replica.
    if (known->second != claim) fail(" differ in step ", step);
    return;
  }
  if (own.is_lost) fail(", which has lost its claim");
  if (claim.first < next_sample_) fail(" are journaled");
  const int64_t rows = plan_.stages.front().replicas[pipeline].rows.count;
  if (claim.count > static_cast<uint64_t>(rows * plan_.microbatch_count)) {
    fail(", which has ", rows, " rows");
  }
  const auto held = std::count_if(claims_.begin(), claims_.end(), [&](const auto& each) {
    return each.second.pipeline == pipeline && !is_done(each.second);
  });
  if (static_cast<size_t>(held) >= claims_max_) {
    fail(", which has ", held, " others");
  }
  const auto next = claims_.lower_bound(claim.first);
  const bool is_again = next != claims_.end() && next->first == claim.first;
  if (is_again) {
    pipelines_[next->second.pipeline].is_lost = true;
    if (next->second.count < claim.count) {  // The rest of a larger one is claimed by itself.
      fail(" are those of pipeline replica ", next->second.pipeline);
    }
  } else if (next != claims_.end() && next->first < claim.first + claim.count) {
    fail(" overlap");
  }
  if (next != claims_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.count > claim.first) {
      fail(" overlap");
    }
  }
  claims_[claim.first] = {pipeline, step, claim.count, false};
}

void PipelineClaims::on_commit(uint32_t pipeline,
                               const net::schema::PipelineCommit::Reader& commit) {
  Pipeline& own = pipelines_[pipeline];
  const uint64_t step = commit.getStep();
  const auto fail = [&](const char* why) {
    on_violation_(
        absl::StrCat("the commit of step ", step, " of pipeline replica ", pipeline, why));
  };
  if (claims_max_ > 1) fail(", whose stages apply their own updates");
  const auto claim = own.claims.find(step);
  if (own.committed != step) {
    if (own.is_lost) fail(" comes after its claim went to another");
    if (own.committed && *own.committed + 1 != step) fail(" is early");
    if (own.is_ready[step].size() != plan_.stages.size()) {
      fail(" comes before all of its replicas are ready");
    }
    own.committed = step;
  }
  if (claim == own.claims.end() || !claims_.contains(claim->second.first)) {
    return fail(" has no samples");
  }
  claims_.at(claim->second.first).is_committed = true;
  if (commit.getNextCount() == 0) return;
  on_claim(pipeline, step + 1, {commit.getNextSample(), commit.getNextCount()});
}

void PipelineClaims::on_append(const plans::CommitRecord& record, uint64_t first_step) {
  uint64_t next = first_step * batch_;
  const uint64_t end = (record.step + 1) * batch_;
  for (const auto& [first, claim] : claims_) {
    if (first != next || first + claim.count > end || !is_done(claim)) {
      on_violation_(absl::StrCat("step ", record.step, " is journaled, and samples ", first, "+",
                                 claim.count, " of pipeline replica ", claim.pipeline, " follow ",
                                 next, is_done(claim) ? " committed" : " not committed"));
      break;
    }
    next = first + claim.count;
  }
  if (next < end) {
    on_violation_(absl::StrCat("step ", record.step, " is journaled, and samples ", next, " to ",
                               end, " were trained by nobody"));
  }
  next_sample_ = end;
  claims_.clear();
}

void PipelineClaims::on_prepared(ProcessId process, uint64_t generation) {
  readers_[process] = {generation, {}, {}};
}

std::set<uint64_t> PipelineClaims::claims() const {
  std::set<uint64_t> firsts;
  for (const auto& [first, claim] : claims_) firsts.insert(first);
  return firsts;
}

std::optional<plans::SampleClaim> PipelineClaims::on_update(ProcessId process) {
  Reader& reader = readers_[process];
  if (reader.commits.empty()) {
    on_violation_("a worker makes an update without a commit");
    return std::nullopt;
  }
  const auto [pipeline, step] = reader.commits.front();
  reader.commits.pop_front();
  if (reader.generation != plan_.generation) {
    reader.samples.clear();
    return std::nullopt;
  }
  const plans::SampleClaim claim = pipelines_[pipeline].claims[step];
  const auto fail = [&, pipeline = pipeline, step = step](const auto&... read) {
    on_violation_(absl::StrCat("pipeline replica ", pipeline, " has ", to_text(claim), " in step ",
                               step, " and has read ", read...));
  };
  const size_t ends = ends_of(workers_[process]);
  for (uint64_t i = 0; i < claim.count && ends > 0; ++i) {
    const size_t count = reader.samples.erase(claim.first + i);
    if (count != ends) fail(claim.first + i, " ", count, " times");
  }
  // What is left is of the claims behind it.
  for (uint64_t sample : reader.samples) {
    const auto is_of = [&](const auto& each) {
      const plans::SampleClaim& other = each.second;
      return each.first > step && sample >= other.first && sample < other.first + other.count;
    };
    const auto& claims = pipelines_[pipeline].claims;
    if (claims_max_ > 1 && std::any_of(claims.begin(), claims.end(), is_of)) continue;
    fail(sample);
    break;
  }
  if (claims_max_ == 1) reader.samples.clear();
  return claim;
}

}  // namespace skein::sim
