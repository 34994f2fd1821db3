#include "plans/simulator/policy_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/base/units.hpp"
#include "plans/modes/last_claim.hpp"

namespace skein::plans {
namespace {

/// One run. Of a replica, `forwards` and `backwards` count pieces that have ended.
class Run {
 public:
  Run(GroupScheduler& policy, const PolicySimulationOptions& options, PolicyListener* listener);
  PolicySimulation run();

 private:
  enum class Kind { kPieceEnd, kUpdateEnd, kGroupEnd, kTimer, kChange, kRoundEnd };
  struct Event {
    double at_us = 0;
    uint64_t sequence = 0;  // Breaks ties.
    Kind kind = Kind::kPieceEnd;
    uint64_t subject = 0;  // Replica, group, wish or change.
    uint64_t life = 0;     // That of the replica's pipeline replica.
    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : sequence > other.sequence;
    }
  };
  struct Replica {
    uint64_t forwards = 0, backwards = 0;
    bool is_running = false, is_backward = false;  // The update is part of the backward.
    bool is_ready = false;                         // Stands still until a group is over.
    bool is_averaging = false;
    double since_us = 0;          // is_ready: of the signal; is_averaging: of the start.
    double begun_us = 0;          // is_running: when the piece began.
    std::vector<double> busy_us;  // [S + 1] the last iterations, by their number modulo that.
  };
  struct Pipeline {
    bool is_live = true;
    uint64_t life = 0;
    uint64_t first_step = 0;
    uint64_t claims = 0;           // Forwards that it has begun, or may begin.
    std::deque<uint64_t> samples;  // Claims whose updates are not over at stage 0.
    double busy_us = 0;            // As `PipelinePace`.
    bool has_claimed = false;      // In this round.
    /// Its round's last claims are under way: it meets nobody.
    bool is_draining = false;
  };
  struct Group {
    GroupStart start;
    std::vector<ReplicaId> members;  // That are alive.
    std::vector<ReplicaId> stood;    // Those among them that stood still for it.
    bool ok = true;
  };
  /// What happened in a span of time.
  struct Span {
    double from_us = 0, to_us = 0;
    std::vector<uint64_t> steps_by_pipeline;
    double samples = 0;
    std::map<uint64_t, uint64_t> sizes, staleness;
    double waiting_us = 0, averaging_us = 0;
    void add(const Span& next);
  };

  void push(double at_us, Kind kind, uint64_t subject, uint64_t life = 0) {
    events_.push({at_us, sequence_++, kind, subject, life});
  }
  uint64_t time() const { return static_cast<uint64_t>(now_us_); }
  Replica& at(uint32_t stage, uint32_t pipeline) {
    return replicas_[layout_.replica(stage, pipeline).value];
  }
  bool wants_backward(uint32_t stage, uint32_t pipeline);
  uint64_t claim_samples(uint32_t pipeline) const {
    return options_.claim_samples.empty() ? 1 : options_.claim_samples[pipeline];
  }
  bool has_rounds() const { return options_.round_samples > 0 && policy_.has_rounds(); }
  bool take_claim(uint32_t pipeline);
  bool would_be_last(uint32_t pipeline, uint64_t samples_left);
  double& busy_us(uint32_t stage, uint32_t pipeline, uint64_t iteration);
  void drain(uint32_t pipeline);
  void try_end_round();
  void begin_round();
  Span span_from(double from_us) const;
  void measure_round();
  void try_run(uint32_t stage, uint32_t pipeline);
  void end_piece(ReplicaId id);
  void end_update(ReplicaId id);
  void apply(const GroupDecisions& decisions);
  void begin(const GroupStart& start);
  void finish(double end_us);
  double end_of_group(const GroupStart& start);
  double serve(uint32_t stage, int32_t server, uint64_t members, double from_us);
  void release(ReplicaId id);
  void end_group(uint64_t number);
  void change(const PipelineChange& change);
  double measured(double from_us) const {
    return std::max(0.0, now_us_ - std::max(from_us, span_.from_us));
  }

  GroupScheduler& policy_;
  const PolicySimulationOptions& options_;
  PolicyListener* const listener_;  // May be null.
  const PipelineLayout layout_;
  double now_us_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Replica> replicas_;
  std::vector<Pipeline> pipelines_;
  std::map<uint64_t, Group> groups_;
  std::map<std::pair<uint32_t, int32_t>, double> server_free_us_;  // By stage and server.
  uint64_t wish_ = 0;
  uint64_t claimed_ = 0;  // Samples, in this round.
  bool is_meeting_ = false;
  std::vector<PipelinePace> paces_;  // Filled anew for each question; kept for its memory.
  Span span_;                        // Since the last end of a round, or the warm-up.
  std::optional<Span> whole_rounds_;
  PolicySimulation result_;
};

Run::Run(GroupScheduler& policy, const PolicySimulationOptions& options, PolicyListener* listener)
    : policy_(policy),
      options_(options),
      listener_(listener),
      layout_(options.layout),
      replicas_(layout_.replica_count()),
      pipelines_(layout_.pipelines) {
  SKEIN_CHECK(options.forward_us.size() == layout_.stages);
  SKEIN_CHECK(options.backward_us.size() == layout_.stages);
  SKEIN_CHECK(options.claim_samples.empty() || options.claim_samples.size() == layout_.pipelines);
  SKEIN_CHECK(options.round_samples == 0 || options.scenario.changes.empty())
      << "with rounds nobody may come or go";
  span_ = span_from(options.round_samples > 0 ? 0 : options.warm_up_us);
}

PolicySimulation Run::run() {
  const auto& changes = options_.scenario.changes;
  for (size_t i = 0; i < changes.size(); ++i) push(changes[i].at_us, Kind::kChange, i);
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) try_run(0, pipeline);
  double end_us = options_.duration_us;
  while (!events_.empty() && events_.top().at_us <= options_.duration_us) {
    const Event event = events_.top();
    events_.pop();
    now_us_ = event.at_us;
    if (listener_ != nullptr && !listener_->advance(now_us_)) {
      end_us = now_us_;
      break;
    }
    if (event.kind == Kind::kTimer && event.subject == wish_) apply(policy_.on_timer(time()));
    if (event.kind == Kind::kGroupEnd) end_group(event.subject);
    if (event.kind == Kind::kChange) change(changes[event.subject]);
    const ReplicaId id{static_cast<uint32_t>(event.subject)};
    if (event.kind == Kind::kRoundEnd) begin_round();
    const bool is_work = event.kind == Kind::kPieceEnd || event.kind == Kind::kUpdateEnd;
    if (!is_work || pipelines_[layout_.pipeline_of(id)].life != event.life) continue;
    if (event.kind == Kind::kPieceEnd) end_piece(id);
    if (event.kind == Kind::kUpdateEnd) end_update(id);
  }
  result_.is_stuck = events_.empty() && end_us == options_.duration_us;
  finish(end_us);
  return result_;
}

void Run::finish(double end_us) {
  now_us_ = end_us;
  for (const Replica& replica : replicas_) {
    if (replica.is_averaging) span_.averaging_us += measured(replica.since_us);
    if (replica.is_ready && !replica.is_averaging) span_.waiting_us += measured(replica.since_us);
  }
  span_.to_us = end_us;
  const Span& all = whole_rounds_ ? *whole_rounds_ : span_;
  const double span_us = std::max(1.0, all.to_us - all.from_us);
  for (const uint64_t steps : all.steps_by_pipeline) {
    result_.steps_per_second += static_cast<double>(steps) / span_us * kMicrosecondsPerSecond;
  }
  result_.samples_per_second = all.samples / span_us * kMicrosecondsPerSecond;
  result_.steps_by_pipeline = all.steps_by_pipeline;
  result_.sizes = all.sizes;
  result_.staleness = all.staleness;
  result_.waiting_share = all.waiting_us / span_us / layout_.replica_count();
  result_.averaging_share = all.averaging_us / span_us / layout_.replica_count();
}

Run::Span Run::span_from(double from_us) const {
  Span span{.from_us = from_us};
  span.steps_by_pipeline.resize(layout_.pipelines);
  return span;
}

void Run::Span::add(const Span& next) {
  to_us = next.to_us;
  for (size_t p = 0; p < steps_by_pipeline.size(); ++p) {
    steps_by_pipeline[p] += next.steps_by_pipeline[p];
  }
  samples += next.samples;
  for (const auto& [size, groups] : next.sizes) sizes[size] += groups;
  for (const auto& [stale, groups] : next.staleness) staleness[stale] += groups;
  waiting_us += next.waiting_us;
  averaging_us += next.averaging_us;
}

/// A round has just ended; nobody waits or averages. Rounds that began in the warm-up are forgotten
/// for the next one.
void Run::measure_round() {
  span_.to_us = now_us_;
  if (whole_rounds_ && whole_rounds_->from_us >= options_.warm_up_us) {
    whole_rounds_->add(span_);
  } else {
    whole_rounds_ = span_;
  }
  span_ = span_from(now_us_);
}

/// Stage s keeps S - s forwards ahead of its backwards, while there are any to do.
bool Run::wants_backward(uint32_t stage, uint32_t pipeline) {
  const Replica& replica = at(stage, pipeline);
  const uint64_t ahead = replica.forwards - replica.backwards;
  if (ahead >= layout_.stages - stage) return true;
  return ahead > 0 && pipelines_[pipeline].is_draining &&
         replica.forwards == pipelines_[pipeline].claims;
}

/// Whether the round has another forward for it; as `LocalUpdates` decides it.
bool Run::take_claim(uint32_t pipeline) {
  uint64_t samples = claim_samples(pipeline);
  if (has_rounds()) {
    const uint64_t left = options_.round_samples - claimed_;
    if (left == 0 || pipelines_[pipeline].is_draining) return false;
    // Its first claim of a round is nobody's to refuse.
    if (pipelines_[pipeline].has_claimed && would_be_last(pipeline, left)) return false;
    samples = std::min(samples, left);
    claimed_ += samples;
    pipelines_[pipeline].has_claimed = true;
  }
  ++pipelines_[pipeline].claims;
  pipelines_[pipeline].samples.push_back(samples);
  return true;
}

bool Run::would_be_last(uint32_t pipeline, uint64_t samples_left) {
  paces_.clear();
  for (uint32_t each = 0; each < layout_.pipelines; ++each) {
    const Pipeline& other = pipelines_[each];
    const uint64_t held = other.claims - at(0, each).backwards;
    paces_.push_back({held > 0 && !other.is_draining, other.busy_us, static_cast<double>(held),
                      static_cast<double>(claim_samples(each))});
  }
  return plans::would_be_last(paces_, pipeline, static_cast<double>(samples_left));
}

double& Run::busy_us(uint32_t stage, uint32_t pipeline, uint64_t iteration) {
  std::vector<double>& busy = at(stage, pipeline).busy_us;
  busy.resize(layout_.stages + 1);
  return busy[iteration % busy.size()];
}

/// Who waits for a group goes on alone.
void Run::drain(uint32_t pipeline) {
  Pipeline& own = pipelines_[pipeline];
  if (std::exchange(own.is_draining, true)) return;
  apply(policy_.on_membership({pipeline, false, own.first_step + own.claims}, time()));
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const Replica& replica = at(stage, pipeline);
    if (replica.is_ready && !replica.is_averaging) release(layout_.replica(stage, pipeline));
  }
}

/// All have done what they had begun, and no group runs.
void Run::try_end_round() {
  if (is_meeting_ || claimed_ < options_.round_samples || !groups_.empty()) return;
  for (const Pipeline& each : pipelines_) {
    if (!each.is_draining) return;
  }
  for (uint32_t r = 0; r < replicas_.size(); ++r) {
    if (replicas_[r].backwards < pipelines_[layout_.pipeline_of({r})].claims) return;
    if (replicas_[r].is_running || replicas_[r].is_ready) return;
  }
  is_meeting_ = true;
  push(now_us_ + options_.global_us, Kind::kRoundEnd, 0);
}

void Run::begin_round() {
  measure_round();
  if (listener_ != nullptr) listener_->on_round_end();
  is_meeting_ = false;
  claimed_ = 0;
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    Pipeline& own = pipelines_[pipeline];
    own.is_draining = own.has_claimed = false;
    apply(policy_.on_membership({pipeline, true, own.first_step + own.claims}, time()));
  }
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) try_run(0, pipeline);
}

void Run::try_run(uint32_t stage, uint32_t pipeline) {
  Replica& replica = at(stage, pipeline);
  if (!pipelines_[pipeline].is_live || replica.is_running || replica.is_ready) return;
  bool is_backward = wants_backward(stage, pipeline);
  const bool needs_claim = stage == 0 && replica.forwards == pipelines_[pipeline].claims;
  if (!is_backward && needs_claim && !take_claim(pipeline)) {
    drain(pipeline);
    // Its other stages may have nothing but backwards to do now; and this one, or nothing at all.
    for (uint32_t other = layout_.stages; other-- > 1;) try_run(other, pipeline);
    if (replica.is_running || replica.is_ready) return;
    is_backward = wants_backward(stage, pipeline);
    if (!is_backward) return try_end_round();
  }
  if (is_backward) {
    const bool has_input =
        stage + 1 == layout_.stages || at(stage + 1, pipeline).backwards > replica.backwards;
    if (!has_input) return;
  } else if (stage > 0 && at(stage - 1, pipeline).forwards <= replica.forwards) {
    return;
  }
  replica.is_running = true;
  replica.is_backward = is_backward;
  replica.begun_us = now_us_;
  const uint64_t step =
      pipelines_[pipeline].first_step + (is_backward ? replica.backwards : replica.forwards);
  const ReplicaId id = layout_.replica(stage, pipeline);
  if (listener_ != nullptr && !is_backward) listener_->on_forward_start(id, step);
  const auto& work_us = is_backward ? options_.backward_us : options_.forward_us;
  const PipelinePiece piece{stage, pipeline, step, is_backward, work_us[stage]};
  push(end_of_piece(options_.scenario, layout_, piece, now_us_), Kind::kPieceEnd, id.value,
       pipelines_[pipeline].life);
}

void Run::end_piece(ReplicaId id) {
  Replica& replica = replicas_[id.value];
  const uint32_t stage = layout_.stage_of(id);
  const uint32_t pipeline = layout_.pipeline_of(id);
  replica.is_running = false;
  const double took_us = now_us_ - replica.begun_us;
  if (!replica.is_backward) {
    busy_us(stage, pipeline, replica.forwards) = took_us;
    const uint64_t step = pipelines_[pipeline].first_step + replica.forwards++;
    if (listener_ != nullptr) listener_->on_forward_end(id, step);
    if (stage + 1 < layout_.stages) try_run(stage + 1, pipeline);
    return try_run(stage, pipeline);
  }
  busy_us(stage, pipeline, replica.backwards) += took_us + options_.update_us;
  const uint64_t step = pipelines_[pipeline].first_step + replica.backwards++;
  if (listener_ != nullptr) listener_->on_gradient(id, step);
  replica.is_running = options_.update_us > 0;
  if (stage > 0) try_run(stage - 1, pipeline);
  if (!replica.is_running) return end_update(id);
  push(now_us_ + options_.update_us, Kind::kUpdateEnd, id.value, pipelines_[pipeline].life);
}

void Run::end_update(ReplicaId id) {
  Replica& replica = replicas_[id.value];
  Pipeline& pipeline = pipelines_[layout_.pipeline_of(id)];
  replica.is_running = false;
  replica.is_ready = true;
  replica.since_us = now_us_;
  if (layout_.stage_of(id) == 0) {
    pipeline.busy_us = 0;
    for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
      pipeline.busy_us = std::max(pipeline.busy_us,
                                  busy_us(stage, layout_.pipeline_of(id), replica.backwards - 1));
    }
  }
  if (pipeline.is_draining) return release(id);
  apply(policy_.on_ready({id, pipeline.first_step + replica.backwards - 1}, time()));
}

void Run::apply(const GroupDecisions& decisions) {
  ++wish_;
  if (decisions.wake_us) {
    push(std::max(static_cast<double>(*decisions.wake_us), now_us_), Kind::kTimer, wish_);
  }
  for (const GroupStart& start : decisions.starts) begin(start);
}

void Run::begin(const GroupStart& start) {
  if (now_us_ >= span_.from_us) {
    ++span_.sizes[start.members.size()];
    ++span_.staleness[start.staleness];
  }
  if (listener_ != nullptr) listener_->on_group_start(start);
  if (start.average == Average::kLocal) return release(start.members[0].replica);
  Group& group = groups_[start.number];
  group.start = start;
  for (const GroupMember& member : start.members) {
    Replica& replica = replicas_[member.replica.value];
    group.members.push_back(member.replica);
    if (!replica.is_ready) continue;
    group.stood.push_back(member.replica);
    span_.waiting_us += measured(replica.since_us);
    replica.is_averaging = true;
    replica.since_us = now_us_;
  }
  push(end_of_group(start), Kind::kGroupEnd, start.number);
}

double Run::end_of_group(const GroupStart& start) {
  const auto members = static_cast<double>(start.members.size());
  if (start.average != Average::kServer) {
    const double values = 1 + (start.averages_moments ? options_.moments_per_weight : 0);
    const double took_us = 2 * (members - 1) / members * values * options_.exchange_us +
                           (members > 1 ? members * options_.latency_us : 0);
    const bool is_hidden = start.average == Average::kReduceGradients;
    return now_us_ + std::max(0.0, took_us - (is_hidden ? options_.hidden_us : 0));
  }
  const auto stage = static_cast<uint32_t>(start.stage);
  const double end_us = serve(stage, start.server, start.members.size(), now_us_);
  return start.server == 0 ? end_us : serve(stage, 0, 1, end_us);
}

double Run::serve(uint32_t stage, int32_t server, uint64_t members, double from_us) {
  double& free_us = server_free_us_[{stage, server}];
  free_us = std::max(free_us, from_us) + static_cast<double>(members) * options_.server_us;
  return std::max(free_us, from_us + options_.server_latency_us);
}

void Run::release(ReplicaId id) {
  Replica& replica = replicas_[id.value];
  (replica.is_averaging ? span_.averaging_us : span_.waiting_us) += measured(replica.since_us);
  replica.is_ready = replica.is_averaging = false;
  const uint32_t pipeline = layout_.pipeline_of(id);
  if (layout_.stage_of(id) == 0) {
    std::deque<uint64_t>& samples = pipelines_[pipeline].samples;
    if (now_us_ >= span_.from_us) {
      ++span_.steps_by_pipeline[pipeline];
      span_.samples += static_cast<double>(samples.front());
    }
    samples.pop_front();
  }
  try_run(layout_.stage_of(id), pipeline);
  if (pipelines_[pipeline].is_draining) try_end_round();
}

void Run::end_group(uint64_t number) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;  // Nobody of it is left.
  const Group group = std::move(found->second);
  groups_.erase(found);
  if (listener_ != nullptr) listener_->on_group_end(group.start, group.ok);
  for (const ReplicaId id : group.stood) release(id);
  apply(policy_.on_group_end({number, group.ok}, time()));
  if (has_rounds()) try_end_round();
}

void Run::change(const PipelineChange& change) {
  Pipeline& pipeline = pipelines_[change.pipeline];
  if (pipeline.is_live == change.joins) return;
  uint64_t step = 0;
  for (uint32_t r = 0; r < replicas_.size(); ++r) {
    step = std::max(step, pipelines_[layout_.pipeline_of({r})].first_step + replicas_[r].backwards);
  }
  pipeline = {.is_live = change.joins, .life = pipeline.life + 1, .first_step = step};
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const ReplicaId id = layout_.replica(stage, change.pipeline);
    replicas_[id.value] = {};
    for (auto& [number, group] : groups_) {
      if (std::erase(group.members, id) > 0) group.ok = false;
      std::erase(group.stood, id);
    }
  }
  std::erase_if(groups_, [](const auto& each) { return each.second.members.empty(); });
  apply(policy_.on_membership({change.pipeline, change.joins, step}, time()));
  try_run(0, change.pipeline);
}

}  // namespace

uint64_t PolicySimulation::size_quantile(double q) const {
  uint64_t updates = 0, below = 0;
  for (const auto& [size, groups] : sizes) updates += size * groups;
  for (const auto& [size, groups] : sizes) {
    below += size * groups;
    if (static_cast<double>(below) >= q * static_cast<double>(updates)) return size;
  }
  return 0;
}

double PolicySimulation::size_mean() const {
  uint64_t updates = 0, count = 0;
  for (const auto& [size, groups] : sizes) {
    updates += size * groups;
    count += groups;
  }
  return count > 0 ? static_cast<double>(updates) / static_cast<double>(count) : 0;
}

PolicySimulation simulate_policy(GroupScheduler& policy, const PolicySimulationOptions& options,
                                 PolicyListener* listener) {
  return Run(policy, options, listener).run();
}

}  // namespace skein::plans
