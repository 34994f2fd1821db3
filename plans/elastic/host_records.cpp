#include "plans/elastic/host_records.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kFirstHoldUs = kSecondUs;
constexpr uint64_t kPlaceForgivesUs = 60'000'000;
constexpr uint64_t kEverywhereForgivesUs = 30'000'000;
constexpr int kPlaceFree = 1;
constexpr int kEverywhereFree = 4;
constexpr int kHoldDoublingsMax = 6;  // 64 s.
/// Losses that come together have one cause, and lead to one change of plan.
constexpr uint64_t kTogetherUs = 300'000;
/// Anybody may come with another name: more than machines of one run that fail at a time.
constexpr size_t kPlacesMax = 256;

uint64_t hold_us(int losses, int free) {
  return losses <= free ? 0 : kFirstHoldUs << std::min(losses - free - 1, kHoldDoublingsMax);
}

}  // namespace

HostRecords::Record HostRecords::forgive(Record record, uint64_t period_us, uint64_t now_us) {
  const uint64_t periods = (std::max(now_us, record.counted_us) - record.counted_us) / period_us;
  if (periods == 0) return record;
  record.losses -= static_cast<int>(std::min<uint64_t>(periods, record.losses));
  record.counted_us += periods * period_us;
  return record;
}

void HostRecords::count(Record& record, uint64_t period_us, uint64_t now_us) {
  const bool is_repeat = record.losses > 0 && now_us < record.last_us + kTogetherUs;
  record = forgive(record, period_us, now_us);
  record.last_us = now_us;
  if (is_repeat) return;
  if (record.losses == 0) record.counted_us = now_us;
  record.losses = std::min(record.losses + 1, kEverywhereFree + 1 + kHoldDoublingsMax);
}

void HostRecords::on_lost(const std::vector<std::string>& places, uint64_t eligible_us,
                          bool had_part, uint64_t now_us) {
  if (now_us > eligible_us + trial_us_) return;
  if (had_part) count(everywhere_, kEverywhereForgivesUs, now_us);
  for (const std::string& place : places) {
    if (place.empty()) continue;
    if (!places_.contains(place) && places_.size() == kPlacesMax) {
      places_.erase(std::min_element(
          places_.begin(), places_.end(),
          [](const auto& a, const auto& b) { return a.second.last_us < b.second.last_us; }));
    }
    count(places_[place], kPlaceForgivesUs, now_us);
  }
}

HostRecords::Hold HostRecords::hold(const std::vector<std::string>& places, uint64_t now_us) const {
  uint64_t longest_us =
      hold_us(forgive(everywhere_, kEverywhereForgivesUs, now_us).losses, kEverywhereFree);
  std::string why = longest_us > 0 ? "workers that join do not stay" : "";
  for (const std::string& place : places) {
    const auto found = places_.find(place);
    if (found == places_.end()) continue;
    const uint64_t own_us =
        hold_us(forgive(found->second, kPlaceForgivesUs, now_us).losses, kPlaceFree);
    if (own_us <= longest_us) continue;
    longest_us = own_us;
    why = absl::StrCat("host ", place, " is flapping");
  }
  return {now_us + longest_us, std::move(why)};
}

void HostRecords::check_invariants() const {
  SKEIN_CHECK(places_.size() <= kPlacesMax) << places_.size();
  for (const auto& [place, record] : places_) SKEIN_CHECK(record.losses >= 0) << place;
  SKEIN_CHECK(everywhere_.losses >= 0) << everywhere_.losses;
}

}  // namespace skein::plans
