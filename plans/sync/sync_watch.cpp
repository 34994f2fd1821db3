#include "plans/sync/sync_watch.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/base/upper_median.hpp"

namespace skein::plans {
namespace {

constexpr size_t kStepsKept =
    32;  // So many of a pipeline replica are enough to see a stall rate of a tenth.
constexpr size_t kStepsMin = 3;            // Below that nothing is known of a pipeline replica.
constexpr double kForwardShare = 1.0 / 3;  // A backward is two products a weight.

std::vector<SyncCandidate> candidates_of(const SyncWatchOptions& options) {
  std::vector<SyncCandidate> candidates = {{}};
  for (const uint64_t local_steps : options.local_steps) candidates.push_back({local_steps});
  return candidates;
}

void keep(std::deque<double>& last, double value) {
  last.push_back(value);
  if (last.size() > kStepsKept) last.pop_front();
}

double median(const std::deque<double>& values) {
  return upper_median({values.begin(), values.end()});
}

}  // namespace

SyncWatch::SyncWatch(PipelineLayout layout, SyncWatchOptions options, SyncCandidate now)
    : layout_(layout),
      options_(std::move(options)),
      chooser_(options_.chooser, candidates_of(options_), now),
      steps_us_(layout.pipelines),
      left_out_(layout.pipelines) {}

void SyncWatch::on_step(uint32_t pipeline, uint64_t busy_us) {
  SKEIN_CHECK(pipeline < layout_.pipelines) << pipeline;
  if (busy_us == 0) return;  // Not measured.
  if (left_out_[pipeline] < options_.steps_left_out) {
    ++left_out_[pipeline];
    return;
  }
  keep(steps_us_[pipeline], static_cast<double>(busy_us));
  ++steps_seen_;
}

void SyncWatch::on_added(uint64_t added_us) { keep(added_us_, static_cast<double>(added_us)); }

double SyncWatch::added_us() const {
  return added_us_.empty() ? options_.added_us : median(added_us_);
}

StragglerProfile SyncWatch::observed_profile() const {
  StragglerProfile profile;
  profile.layout = layout_;
  profile.moments_per_weight = options_.moments_per_weight;
  std::vector<std::vector<double>> steps_us;
  for (const auto& pipeline : steps_us_) steps_us.emplace_back(pipeline.begin(), pipeline.end());
  measure_stragglers(steps_us, profile);
  double fastest_us = median(steps_us_.front());
  for (const auto& pipeline : steps_us_) fastest_us = std::min(fastest_us, median(pipeline));
  profile.forward_us.assign(layout_.stages, fastest_us * kForwardShare);
  profile.backward_us.assign(layout_.stages, fastest_us * (1 - kForwardShare));
  if (added_us() == 0) return profile;
  const auto pipelines = static_cast<double>(layout_.pipelines);
  profile.exchange_us = added_us() * pipelines / (2 * std::max(1.0, pipelines - 1));
  return profile;
}

std::optional<StragglerProfile> SyncWatch::due() {
  if (layout_.pipelines < 2 || steps_seen_ < chooser_.steps_between_looks() * layout_.pipelines)
    return {};
  const bool all_known = std::all_of(steps_us_.begin(), steps_us_.end(),
                                     [](const auto& each) { return each.size() >= kStepsMin; });
  if (!all_known) return std::nullopt;
  steps_seen_ = 0;
  return observed_profile();
}

std::optional<SyncChoice> SyncWatch::on_choice(SyncChoice choice) {
  return chooser_.judge(std::move(choice));
}

std::optional<SyncChoice> SyncWatch::look() {
  const std::optional<StragglerProfile> profile = due();
  if (!profile) return std::nullopt;
  return on_choice(choose_sync(*profile, chooser_.candidates(), chooser_.options()));
}

}  // namespace skein::plans
