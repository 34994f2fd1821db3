#include "cli/config/resume_keys.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/job_keys.hpp"
#include "plans/base/fnv.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

struct ResumeKey {
  const char* name;  // A key, or a whole section as "elastic."
  const char* why;   // It may change.
};

/// Keys that may change when a run is resumed. Workers that have lived on take the new values, but
/// for `device`, before the next step is computed. A key that is not here decides what state means,
/// or which samples were used: a run with another value of it is another run, which may begin with
/// this one's checkpoint (checkpoint.initial_load_path).
constexpr ResumeKey kResumeKeys[] = {
    {"job.dump_folder", "the run's folder may have moved; it goes on where it is"},
    {"training.steps", "a run may be made longer; the learning rates follow"},
    {"training.max_norm", "read anew with each update"},
    {"training.micro_batch_size", "cuts a step's samples, which stay the same, into pieces"},
    {"training.recompute", "memory or time; the gradients are the same"},
    {"optimizer.lr", "read anew with each update"},
    {"optimizer.weight_decay", "read anew with each update"},
    {"optimizer.beta1", "moments keep their meaning"},
    {"optimizer.beta2", "moments keep their meaning"},
    {"optimizer.eps", "read anew with each update"},
    {"optimizer.momentum", "moments keep their meaning"},
    {"lr_scheduler.", "the rate of a step depends on its number only"},
    {"data.path", "the file may have moved; its contents are compared"},
    {"data.mixture", "the same"},
    {"data.validation_path", "changes no weight"},
    {"parallelism.", "every layout goes on from every state"},
    {"device.type", "belongs to the worker, which keeps what it has until it is started anew"},
    {"device.threads", "the same"},
    {"device.speed", "the same"},
    {"device.speeds", "the same"},
    {"device.sleep_forward_us", "the same"},
    {"device.sleep_backward_us", "the same"},
    {"device.sleep_update_us", "the same"},
    {"device.scenario", "the same"},
    {"device.scenario_trace", "the same"},
    {"device.scenario_step_seconds", "the same"},
    {"device.ordinal", "the same"},
    {"device.memory_limit_mb", "the same"},
    {"validation.", "changes no weight"},
    {"checkpoint.enable", "where state is written changes no weight"},
    {"checkpoint.interval", "the same"},
    {"checkpoint.keep_latest_k", "the same"},
    {"elastic.", "time-outs, snapshots and numbers of workers change no weight"},
    {"sync.", "every policy and reducer goes on from state that all replicas share"},
    {"tokens.", "cuts a step's samples, which stay the same, into pieces"},
    {"comm.", "time-outs, and ways to the same sums; all workers take the same one"},
    {"sharing.", "whose work goes first changes no weight"},
    {"metrics.", "for people"},
    {"profiling.", "for people"},
};

/// What the digest leaves out: names, what each worker has of its own, and reports.
constexpr const char* kOutsideDigest[] = {"job.", "device.", "metrics.", "profiling."};
/// One device that computes with other numbers trains something else.
constexpr const char* kPrecision = "device.precision";

/// `entry` is a key, or a section with a dot behind it.
bool covers(const std::string& entry, const std::string& key) {
  return entry.ends_with('.') ? key.starts_with(entry) : key == entry;
}

bool is_in_digest(const std::string& key) {
  if (key == kPrecision) return true;
  return std::none_of(std::begin(kOutsideDigest), std::end(kOutsideDigest),
                      [&](const char* entry) { return covers(entry, key); });
}

}  // namespace

uint64_t config_digest(const plans::JobSpec& job) {
  uint64_t digest = plans::kFnvOffset;
  for (const JobKey& key : job_keys()) {
    if (!is_in_digest(key.full_name())) continue;
    for (const char each : absl::StrCat(key.full_name(), "=", key.get(job), "\n")) {
      digest = plans::add_to_fnv(digest, static_cast<unsigned char>(each));
    }
  }
  return std::max<uint64_t>(digest, 1);
}

bool may_change_on_resume(const std::string& key) {
  return std::any_of(std::begin(kResumeKeys), std::end(kResumeKeys),
                     [&](const ResumeKey& entry) { return covers(entry.name, key); });
}

absl::StatusOr<std::vector<ChangedKey>> resumed_changes(const plans::JobSpec& before,
                                                        const plans::JobSpec& now) {
  std::vector<ChangedKey> changes;
  std::vector<std::string> refused;
  for (const JobKey& key : job_keys()) {
    ChangedKey change = {key.full_name(), key.get(before), key.get(now)};
    if (change.before == change.now) continue;
    if (!may_change_on_resume(change.name)) {
      refused.push_back(absl::StrCat(change.name, " = ", change.now, " (was ", change.before, ")"));
    }
    changes.push_back(std::move(change));
  }
  if (refused.empty()) return changes;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot change within a run: ", absl::StrJoin(refused, ", "),
                   "; leave them as they were, or start a new run from this one's checkpoint with "
                   "--checkpoint.initial_load_path"));
}

}  // namespace skein::cli
