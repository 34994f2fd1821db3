#include "plans/worker/last_save.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

/// Who is told to leave is often killed ten seconds later: it does not wait longer for its device
/// before it writes what the host's memory has.
constexpr uint64_t kLeaverDeviceUs = 2'000'000;

}  // namespace

LastSave::LastSave(Options options, uint64_t now_us)
    : options_(std::move(options)), is_device_at_work_(options_.is_device_at_work) {
  SKEIN_CHECK(!options_.why.ok()) << "a coordinator is given up without a reason";
  const auto patience_us =
      static_cast<uint64_t>(options_.patience_seconds * kMicrosecondsPerSecond);
  const uint64_t half_us = patience_us / 2;
  const uint64_t device_us = options_.leaves ? std::min(kLeaverDeviceUs, half_us) : half_us;
  ends_at_us_ = now_us + patience_us;
  copies_go_at_us_ = now_us + (options_.is_device_late ? 0 : device_us);
}

LastSave::Decision LastSave::begin(const Held& held, uint64_t now_us) {
  if (!is_device_at_work_) return go_on(held, now_us);
  Decision decision;
  decision.announces = must_announce(held);
  return decision;
}

LastSave::Decision LastSave::on_tick(const Held& held, uint64_t now_us) {
  if (has_ended_) return {};
  if (now_us < ends_at_us_) return go_on(held, now_us);
  Decision decision;
  decision.ends = end(now_us);
  return decision;
}

LastSave::Decision LastSave::on_device_ended(const Held& held, uint64_t now_us) {
  is_device_at_work_ = false;
  return go_on(held, now_us);
}

LastSave::Decision LastSave::on_saved(const EmergencySaved& saved, const Held& held,
                                      uint64_t now_us) {
  if (has_ended_ || !saving_) return {};
  const bool was_all = *std::exchange(saving_, std::nullopt) == Part::kAll;
  saved_.status = saved.status;
  for (const std::string& folder : saved.folders) {
    const auto known = std::find(saved_.folders.begin(), saved_.folders.end(), folder);
    if (known == saved_.folders.end()) saved_.folders.push_back(folder);
  }
  if (saved.may_go_later) return {};  // The next tick tries again, until `ends_at_us_`.
  has_saved_copies_ = true;
  if (!was_all && !is_device_at_work_) return go_on(held, now_us);
  Decision decision;
  if (!is_device_at_work_ || options_.is_device_late) decision.ends = end(now_us);
  return decision;
}

LastSave::Decision LastSave::go_on(const Held& held, uint64_t now_us) {
  Decision decision;
  if (has_ended_ || saving_) return decision;  // What comes of it is seen first.
  decision.announces = is_device_at_work_ && must_announce(held);
  if (is_device_at_work_ && (has_saved_copies_ || now_us < copies_go_at_us_)) return decision;
  const bool may_read_models = held.has_models && !is_device_at_work_;
  if (held.has_copies || may_read_models) {
    saving_ = is_device_at_work_ ? Part::kCopies : Part::kAll;
    decision.saves = saving_;
  } else if (!is_device_at_work_ || options_.is_device_late) {
    decision.ends = end(now_us);
  }
  return decision;
}

/// A coordinator that is back meanwhile takes back no steps that a device has.
bool LastSave::must_announce(const Held& held) const {
  return options_.steps_done > 0 && !(has_saved_copies_ && held.is_newest_copied);
}

LastSave::End LastSave::end(uint64_t now_us) {
  has_ended_ = true;
  const bool is_late = now_us >= ends_at_us_;
  std::string text(options_.why.message());
  if (is_device_at_work_) {
    absl::StrAppend(&text, "; what is only on the device, which does not end its work, is lost");
  }
  if (!saved_.folders.empty()) {
    absl::StrAppend(&text, "; what this worker holds is in ", absl::StrJoin(saved_.folders, ", "),
                    ": the run goes on from there when it is resumed, if all layers are");
  }
  if (!saved_.status.ok() || saving_) {
    absl::StrAppend(&text, "; what this worker holds ",
                    saved_.folders.empty() ? "" : "beside that ", "could not be written");
    if (is_late) absl::StrAppend(&text, " within ", options_.patience_seconds, " s");
    if (!saved_.status.ok()) absl::StrAppend(&text, ": ", std::string(saved_.status.message()));
  }
  return {absl::Status(options_.why.code(), text), is_device_at_work_ || saving_.has_value()};
}

}  // namespace skein::plans
