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
#include "plans/modes/lease_pool.hpp"
#include "plans/plan/plan.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Who trains which samples, of columns that have their own pace. What must hold:
///   leases    are of samples that nobody else has or has committed, unless that column is never
///             heard again; a column has one at a time
///   commits   of a column follow its leases, each after the ready signals of all of its replicas
///   segments  are journaled when every sample of them has been committed by one column
///   updates   follow a commit, and the worker has read the samples of the lease, each once
/// Single-threaded.
class ColumnLeases {
 public:
  using OnViolation = std::function<void(const std::string& what)>;
  ColumnLeases(const plans::JobSpec& job, OnViolation on_violation);

  /// The plan begins with this step.
  void on_plan(const plans::Plan& plan, uint64_t first_step);
  void on_control(ProcessId to, const net::schema::Envelope::Reader& envelope, bool arrives);
  /// Of the steps from `first_step` on.
  void on_append(const plans::CommitRecord& record, uint64_t first_step);
  /// The process trains under another plan from now on.
  void on_prepared(ProcessId process, uint64_t generation);
  void on_read(ProcessId process, uint64_t sample) { readers_[process].samples.insert(sample); }
  /// What the process has trained on; none if that is not known any more.
  std::optional<plans::SampleLease> on_update(ProcessId process);
  /// First samples of the leases of the segment in progress.
  std::set<uint64_t> leases() const;

 private:
  /// A range that is leased, by its first sample.
  struct Lease {
    uint32_t column = 0;
    uint64_t step = 0;
    uint64_t count = 0;
    bool is_committed = false;  // Somebody was told so.
  };
  struct Column {
    bool is_lost = false;
    std::optional<uint64_t> lease;                    // First sample of its last one.
    std::map<uint64_t, plans::SampleLease> leases;    // Of this plan, by its own steps.
    std::map<uint64_t, std::set<uint32_t>> is_ready;  // Replicas by step.
    std::optional<uint64_t> committed;                // Its last step that was.
  };
  struct Reader {
    uint64_t generation = 0;
    std::deque<std::pair<uint32_t, uint64_t>> commits;  // Columns and steps, to be applied.
    std::multiset<uint64_t> samples;                    // Since the last update.
  };

  void on_lease(uint32_t column, uint64_t step, plans::SampleLease lease);
  void on_commit(uint32_t column, const net::schema::ColumnCommit::Reader& commit);
  bool is_done(const Lease& lease) const;
  std::optional<uint32_t> column_of(uint32_t worker) const;
  /// The process computes the first or the last stage.
  bool reads(uint32_t worker) const;

  const uint64_t batch_;
  const OnViolation on_violation_;
  plans::Plan plan_;
  uint64_t next_sample_ = 0;            // First one that is in no journaled segment.
  std::map<uint64_t, Lease> leases_;    // Of the segment in progress.
  std::map<uint32_t, Column> columns_;  // Of the plan.
  std::map<ProcessId, Reader> readers_;
  std::map<ProcessId, uint32_t> workers_;  // Their numbers.
};

}  // namespace skein::sim
