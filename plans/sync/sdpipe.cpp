#include "plans/sync/sdpipe.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

SdpipeOptions sdpipe_artefact(uint32_t pipelines, uint64_t period) {
  constexpr uint32_t kPipelinesOfWholeGroups = 8;
  SdpipeOptions options;
  options.period = period;
  options.window = artefact_window();
  options.pairs = pipelines > kPipelinesOfWholeGroups;
  options.pairs_connect = false;
  options.holds_ignore_window = true;
  options.holds_in_turn = false;
  return options;
}

SdpipePolicy::SdpipePolicy(PipelineLayout layout, SdpipeOptions options)
    : PeerPolicy(layout, options.decay),
      options_(options),
      windows_(layout.replica_count(), AdaptiveWindow(options.window)),
      went_on_us_(layout.replica_count()) {
  SKEIN_CHECK(options.period >= 1);
  const Components apart(std::vector<bool>(layout.pipelines, true));
  stages_.resize(layout.stages, Stage{{}, 0, false, {}, 0, false, apart});
}

void SdpipePolicy::on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) {
  const uint32_t s = roster_.layout().stage_of(replica);
  Stage& stage = stages_[s];
  // 0: it went on before we heard that its group had ended.
  const uint64_t began_us = went_on_us_[replica.value];
  if (began_us > 0 && began_us < now_us) windows_[replica.value].on_step(now_us - began_us);
  if (stage.ready.empty()) begin_gathering(s, replica, now_us);
  stage.ready.push_back(replica);
  if (stage.holds)
    stage.reached.insert(stage.components.find(roster_.layout().pipeline_of(replica)));
  release_if_due(s, now_us, starts);
}

void SdpipePolicy::on_free(ReplicaId replica, uint64_t now_us, Starts&) {
  went_on_us_[replica.value] = now_us;
}

/// The first one decides: its window, and whether its group is held.
void SdpipePolicy::begin_gathering(uint32_t s, ReplicaId first, uint64_t now_us) {
  Stage& stage = stages_[s];
  stage.deadline_us = now_us + windows_[first.value].window_us(options_.window);
  const bool has_turn = !options_.holds_in_turn || (!in_turn_.empty() && in_turn_.front() == s);
  if (!stage.needs_connection || is_held_ || !has_turn) return;
  stage.holds = is_held_ = true;
}

bool SdpipePolicy::is_connected(const Stage& stage) const {
  return stage.reached.size() == stage.components.count();
}

bool SdpipePolicy::is_due(const Stage& stage, uint64_t now_us) const {
  if (stage.ready.empty()) return false;
  if (stage.ready.size() == roster_.present_count()) return true;
  const bool is_late = now_us >= stage.deadline_us;
  if (!stage.holds) return is_late;
  return is_connected(stage) && (is_late || options_.holds_ignore_window);
}

void SdpipePolicy::release_if_due(uint32_t s, uint64_t now_us, Starts& starts) {
  Stage& stage = stages_[s];
  if (!is_due(stage, now_us)) return;
  std::vector<ReplicaId> ready = std::exchange(stage.ready, {});
  std::sort(ready.begin(), ready.end());
  const bool in_pairs = options_.pairs && !stage.holds;
  const size_t group_size = in_pairs ? 2 : ready.size();
  for (size_t begin = 0; begin < ready.size(); begin += group_size) {
    const size_t count = std::min(group_size, ready.size() - begin);
    start_group(std::span(ready).subspan(begin, count), now_us, starts);
  }
  if (stage.holds) {
    end_hold(stage);
    stage.components.reset();
    stage.needs_connection = false;
    stage.updates = 0;
    std::erase(in_turn_, s);
  }
  count_updates(s, ready.size());
}

void SdpipePolicy::start_group(std::span<const ReplicaId> members, uint64_t now_us,
                               Starts& starts) {
  std::vector<uint32_t> pipelines;
  for (const ReplicaId member : members) {
    pipelines.push_back(roster_.layout().pipeline_of(member));
    windows_[member.value].on_group(options_.window, members.size());
    // Who is alone goes on now; of the others we hear.
    went_on_us_[member.value] = members.size() == 1 ? now_us : 0;
  }
  if (!options_.pairs || options_.pairs_connect) {
    stages_[roster_.layout().stage_of(members[0])].components.connect(pipelines);
  }
  starts.push_back(roster_.start(members));
}

void SdpipePolicy::end_hold(Stage& stage) {
  stage.holds = is_held_ = false;
  stage.reached.clear();
}

void SdpipePolicy::count_updates(uint32_t s, uint64_t count) {
  Stage& stage = stages_[s];
  stage.updates += count;
  const uint64_t due = options_.period * std::max<uint64_t>(roster_.present_count(), 1);
  if (stage.updates < due) return;
  stage.updates %= due;
  if (stage.needs_connection) return;
  stage.needs_connection = true;
  in_turn_.push_back(s);
}

void SdpipePolicy::reach_anew(Stage& stage) {
  stage.reached.clear();
  for (const ReplicaId replica : stage.ready) {
    stage.reached.insert(stage.components.find(roster_.layout().pipeline_of(replica)));
  }
}

void SdpipePolicy::on_joined(uint32_t pipeline, uint64_t now_us, Starts&) {
  for (uint32_t s = 0; s < stages_.size(); ++s) {
    const ReplicaId replica = roster_.layout().replica(s, pipeline);
    windows_[replica.value] = AdaptiveWindow(options_.window);
    went_on_us_[replica.value] = now_us;
    stages_[s].components.join(pipeline);
    if (stages_[s].holds) reach_anew(stages_[s]);
  }
}

void SdpipePolicy::on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) {
  for (uint32_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    std::erase(stage.ready, roster_.layout().replica(s, pipeline));
    stage.components.leave(pipeline);
    if (stage.holds) reach_anew(stage);
    if (stage.holds && stage.ready.empty()) end_hold(stage);
    release_if_due(s, now_us, starts);
  }
}

void SdpipePolicy::on_due(uint64_t now_us, Starts& starts) {
  for (uint32_t s = 0; s < stages_.size(); ++s) release_if_due(s, now_us, starts);
}

std::optional<uint64_t> SdpipePolicy::wake_us() const {
  std::optional<uint64_t> wake;
  for (const Stage& stage : stages_) {
    if (stage.ready.empty() || (stage.holds && !is_connected(stage))) continue;
    wake = std::min(wake.value_or(UINT64_MAX), stage.deadline_us);
  }
  return wake;
}

}  // namespace skein::plans
