#include "plans/coordinator/checkpoint_reads.hpp"

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

/// So many unlike reasons are told while one search lasts; who reads them knows enough by then.
constexpr size_t kDelaysToldMax = 16;

}  // namespace

void CheckpointReads::begin_generation() {
  has_sought_ = false;
  served_.clear();
  complaints_.clear();
}

bool CheckpointReads::complain(WorkerId worker, const std::string& reason) {
  return complaints_.emplace(worker, reason).second;
}

std::vector<RunEvent> CheckpointReads::on_verified(const CheckpointVerdict& verdict) {
  is_verifying_ = false;
  if (!verdict.status.ok()) return {};  // The run ends.
  fault_ = verdict.checkpoint;
  const std::string instead =
      fault_.ok() ? absl::StrCat("going on from the checkpoint of step ", verdict.step)
                  : "there is no other: only the workers may have the state";
  std::vector<RunEvent> events;
  for (const std::string& fault : verdict.faults) {
    events.push_back({"checkpoint.damaged",
                      absl::StrCat(fault, "; ", instead),
                      {{"reason", fault}, {"step", absl::StrCat(verdict.step)}}});
  }
  return events;
}

std::optional<RunEvent> CheckpointReads::on_seeking_delayed(const std::string& reason) {
  if (told_delays_.size() >= kDelaysToldMax) return std::nullopt;
  if (!told_delays_.insert(reason).second) return std::nullopt;
  return RunEvent{"checkpoint.waiting",
                  absl::StrCat("no checkpoint can be made of newer state that workers have left: ",
                               reason, "; it is tried again, and no step is taken back meanwhile"),
                  {{"reason", reason}}};
}

void CheckpointReads::on_sought() {
  is_seeking_ = false;
  told_delays_.clear();
  has_sought_ = true;
}

}  // namespace skein::plans
