#include "tests/sim/column_leases.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

std::string to_text(const plans::SampleLease& lease) {
  return absl::StrCat("samples ", lease.first, "+", lease.count);
}

}  // namespace

ColumnLeases::ColumnLeases(const plans::JobSpec& job, OnViolation on_violation)
    : batch_(static_cast<uint64_t>(job.training.global_batch_size)),
      on_violation_(std::move(on_violation)) {}

void ColumnLeases::on_plan(const plans::Plan& plan, uint64_t first_step) {
  if (plan.generation <= plan_.generation) return;
  plan_ = plan;
  next_sample_ = first_step * batch_;
  leases_.clear();
  columns_.clear();
}

std::optional<uint32_t> ColumnLeases::column_of(uint32_t worker) const {
  for (const plans::StagePlan& stage : plan_.stages) {
    for (size_t column = 0; column < stage.replicas.size(); ++column) {
      if (stage.replicas[column].worker.value == worker) return static_cast<uint32_t>(column);
    }
  }
  return std::nullopt;
}

bool ColumnLeases::reads(uint32_t worker) const {
  for (const plans::StagePlan* stage : {&plan_.stages.front(), &plan_.stages.back()}) {
    for (const plans::ReplicaPlan& replica : stage->replicas) {
      if (replica.worker.value == worker) return true;
    }
  }
  return false;
}

void ColumnLeases::on_control(ProcessId to, const net::schema::Envelope::Reader& envelope,
                              bool arrives) {
  const auto body = envelope.getBody();
  const uint64_t generation = envelope.getGeneration();
  if (envelope.getReceiver() != 0) workers_[to] = envelope.getReceiver();
  const std::optional<uint32_t> column = column_of(envelope.getReceiver());
  // Who is cut off may go on for a while under the plan of before.
  if (arrives && body.isColumnCommit() && readers_[to].generation == generation) {
    readers_[to].commits.emplace_back(column.value_or(0), body.getColumnCommit().getStep());
  }
  if (generation != plan_.generation) return;
  if (arrives && body.isReady()) {
    const uint32_t replica = body.getReady().getReplica();
    const auto columns = static_cast<uint32_t>(plan_.stages.front().replicas.size());
    columns_[replica % columns].is_ready[body.getReady().getStep()].insert(replica);
  }
  if (arrives || !column) return;
  if (body.isLease()) {
    const auto lease = body.getLease();
    on_lease(*column, lease.getStep(), {lease.getFirstSample(), lease.getSampleCount()});
  } else if (body.isColumnCommit()) {
    on_commit(*column, body.getColumnCommit());
  }
}

bool ColumnLeases::is_done(const Lease& lease) const {
  if (lease.is_committed) return true;
  // It was committed, and nobody was there any more to be told.
  const Column& column = columns_.at(lease.column);
  const auto ready = column.is_ready.find(lease.step);
  return ready != column.is_ready.end() && ready->second.size() == plan_.stages.size();
}

void ColumnLeases::on_lease(uint32_t column, uint64_t step, plans::SampleLease lease) {
  Column& own = columns_[column];
  const auto [known, is_new] = own.leases.try_emplace(step, lease);
  const std::string what = absl::StrCat(to_text(lease), " leased to column ", column);
  if (!is_new) {  // For another worker of the column.
    if (known->second != lease) on_violation_(absl::StrCat(what, " differ in step ", step));
    return;
  }
  if (own.is_lost) on_violation_(absl::StrCat(what, ", which has lost its lease"));
  if (lease.first < next_sample_) on_violation_(absl::StrCat(what, " are journaled"));
  if (own.lease && leases_.contains(*own.lease) && !is_done(leases_.at(*own.lease))) {
    on_violation_(absl::StrCat(what, ", which has others"));
  }
  own.lease = lease.first;
  const auto next = leases_.lower_bound(lease.first);
  const bool is_again = next != leases_.end() && next->first == lease.first;
  if (is_again) {
    columns_[next->second.column].is_lost = true;
    if (next->second.count != lease.count) {
      on_violation_(absl::StrCat(what, " are those of column ", next->second.column));
    }
  } else if (next != leases_.end() && next->first < lease.first + lease.count) {
    on_violation_(absl::StrCat(what, " overlap"));
  }
  if (next != leases_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.count > lease.first) {
      on_violation_(absl::StrCat(what, " overlap"));
    }
  }
  leases_[lease.first] = {column, step, lease.count, false};
}

void ColumnLeases::on_commit(uint32_t column, const net::schema::ColumnCommit::Reader& commit) {
  Column& own = columns_[column];
  const uint64_t step = commit.getStep();
  const std::string what = absl::StrCat("the commit of step ", step, " of column ", column);
  const auto lease = own.leases.find(step);
  if (own.committed != step) {
    if (own.is_lost) on_violation_(absl::StrCat(what, " comes after its lease went to another"));
    if (own.committed && *own.committed + 1 != step) on_violation_(absl::StrCat(what, " is early"));
    if (own.is_ready[step].size() != plan_.stages.size()) {
      on_violation_(absl::StrCat(what, " comes before all of its replicas are ready"));
    }
    own.committed = step;
  }
  if (lease == own.leases.end() || !leases_.contains(lease->second.first)) {
    return on_violation_(absl::StrCat(what, " has no samples"));
  }
  leases_.at(lease->second.first).is_committed = true;
  if (commit.getNextCount() == 0) return;
  on_lease(column, step + 1, {commit.getNextSample(), commit.getNextCount()});
}

void ColumnLeases::on_append(const plans::CommitRecord& record, uint64_t first_step) {
  uint64_t next = first_step * batch_;
  const uint64_t end = (record.step + 1) * batch_;
  for (const auto& [first, lease] : leases_) {
    if (first != next || first + lease.count > end || !is_done(lease)) {
      on_violation_(absl::StrCat("step ", record.step, " is journaled, and samples ", first, "+",
                                 lease.count, " of column ", lease.column, " follow ", next,
                                 is_done(lease) ? " committed" : " not committed"));
      break;
    }
    next = first + lease.count;
  }
  if (next < end) {
    on_violation_(absl::StrCat("step ", record.step, " is journaled, and samples ", next, " to ",
                               end, " were trained by nobody"));
  }
  next_sample_ = end;
  leases_.clear();
}

void ColumnLeases::on_prepared(ProcessId process, uint64_t generation) {
  readers_[process] = {generation, {}, {}};
}

std::set<uint64_t> ColumnLeases::leases() const {
  std::set<uint64_t> firsts;
  for (const auto& [first, lease] : leases_) firsts.insert(first);
  return firsts;
}

std::optional<plans::SampleLease> ColumnLeases::on_update(ProcessId process) {
  Reader& reader = readers_[process];
  const std::multiset<uint64_t> samples = std::exchange(reader.samples, {});
  if (reader.commits.empty()) {
    on_violation_("a worker makes an update without a commit");
    return std::nullopt;
  }
  const auto [column, step] = reader.commits.front();
  reader.commits.pop_front();
  if (reader.generation != plan_.generation) return std::nullopt;
  const plans::SampleLease lease = columns_[column].leases[step];
  std::multiset<uint64_t> expected;
  for (uint64_t i = 0; i < lease.count && reads(workers_[process]); ++i) {
    expected.insert(lease.first + i);
  }
  if (samples == expected) return lease;
  on_violation_(absl::StrCat("column ", column, " has ", to_text(lease), " in step ", step,
                             " and has read ", samples.size(), " from ",
                             samples.empty() ? 0 : *samples.begin()));
  return lease;
}

}  // namespace skein::sim
