// Bytes as a sequence of events for the coordinator's decisions: what an honest cluster answers, in
// any order, between what members say who lie. The full sweep of invariants runs after each event,
// and a member that has no part in the plan must not get anywhere.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "plans/base/rng.hpp"
#include "plans/coordinator/coordination.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {
namespace {

using plans::WorkerId;

constexpr uint32_t kHonest = 4;  // Connections 1 to 4; those behind them belong to liars.
constexpr uint32_t kLiars = 3;
constexpr uint64_t kMillisecondUs = 1'000;
/// What the codec lets through at most; see net/codec/bounds.hpp.
constexpr uint64_t kGenerationsMax = uint64_t{1} << 47;
constexpr uint64_t kStepsMax = uint64_t{1} << 48;

void require(bool holds, int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "coordination_events_fuzz.cpp:%d does not hold\n", line);
  __builtin_trap();
}

/// Numbers made of bytes; 0 when there are no more.
class Script {
 public:
  Script(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}
  bool is_over() const { return left_ == 0; }
  uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  uint64_t below(uint64_t limit) { return next() % limit; }
  /// Mostly small, sometimes the largest that a codec lets through.
  uint64_t number(uint64_t most) {
    const uint8_t value = next();
    return value < 250 ? std::min<uint64_t>(value, most) : most - (255 - value);
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

plans::JobSpec make_job(uint64_t variant) {
  plans::JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.training.steps = 12;
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 4;
  job.parallelism.pipeline_parallel_degree = 2;
  job.validation.batches = 1;
  job.validation.interval = 3;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 2;
  job.profiling.enable_profiling = false;
  job.elastic.snapshot_interval = 1;
  if (variant != 0) job.parallelism.data_parallel_replicate_degree = 2;
  if (variant == 2) {
    job.sync.policy = "sdpipe";
    job.sync.group_size = 2;
    job.sync.round_steps = 2;
  }
  return job;
}

/// A coordination, the members that do what they are told, and those that do not.
class World {
 public:
  explicit World(Script& script)
      : script_(script), coordination_(options(script.below(3)), now_us_) {}

  void run() {
    for (uint32_t peer = 1; peer <= kHonest; ++peer) join(peer, {});
    while (!script_.is_over() && coordination_.phase() != Phase::kEnded) {
      now_us_ += 1 + script_.below(64) * kMillisecondUs;
      if (script_.below(4) > 0 && !honest_.empty()) {
        answer();
      } else {
        lie();
      }
    }
  }

 private:
  using Phase = plans::Coordination::Phase;
  using Outcome = plans::CoordinatorOutcome;
  using Answer = std::function<Outcome()>;

  static plans::Coordination::Options options(uint64_t variant) {
    plans::Coordination::Options options;
    options.job = make_job(variant);
    options.worker_count = kHonest;
    return options;
  }

  // What honest members say --------------------------------------------------------------------

  void answer() {
    const auto chosen = honest_.begin() + static_cast<int64_t>(script_.below(honest_.size()));
    const Answer next = std::move(*chosen);
    honest_.erase(chosen);
    take(next(), false);
  }

  void join(uint32_t peer, plans::WorkerId previous) {
    plans::JoinRequest request;
    request.host_name = "host";
    request.process_id = peer;
    request.data_address = "127.0.0.1:" + std::to_string(peer);
    request.previous = previous;
    take(coordination_.on_join(++connections_, request, now_us_), false);
  }

  bool is_honest(WorkerId worker) const {
    const auto member = coordination_.members().find(worker);
    return member != coordination_.members().end() && member->second.request.process_id <= kHonest;
  }

  void later(WorkerId worker, Answer what) {
    if (is_honest(worker)) honest_.push_back(std::move(what));
  }

  void ready(plans::ReplicaId replica, uint64_t step) {
    const WorkerId worker = plans::replica_of(*coordination_.plan(), replica).worker;
    later(worker, [this, worker, replica, step] {
      plans::ReadyReport report;
      report.replica = replica;
      report.step = step;
      report.loss_sum = 3;
      report.loss_tokens = 2;
      report.norm_squared = 4;
      return coordination_.on_ready(worker, report, now_us_);
    });
  }

  void begin_step(uint64_t step) {
    if (plans::has_pipelines(*coordination_.plan())) return;  // Its orders are its own.
    const int64_t count = plans::replica_count(*coordination_.plan());
    for (uint32_t i = 0; i < count; ++i) ready({i}, step);
  }

  void fulfil(const plans::CommitOrder& order, uint64_t steps_done) {
    const plans::Plan& plan = *coordination_.plan();
    const uint64_t generation = plan.generation;
    for (const plans::ReplicaPlan& each : plan.stages.back().replicas) {
      if (!order.validate) break;
      later(each.worker, [this, each, step = order.step] {
        return coordination_.on_validated(each.worker, each.id, step, 3, 2, now_us_);
      });
    }
    for (int32_t stage = 0; stage < static_cast<int32_t>(plan.stages.size()); ++stage) {
      const WorkerId worker = plan.stages[static_cast<size_t>(stage)].replicas.front().worker;
      if (order.checkpoint) {
        later(worker, [this, worker, stage, steps_done, generation] {
          if (generation != coordination_.generation()) return Outcome();
          Outcome outcome = coordination_.on_shard_saved(worker, stage, steps_done, {}, now_us_);
          if (outcome.is_accepted()) saved_[steps_done].insert(stage);
          return outcome;
        });
      }
      if (order.snapshot) {
        later(worker, [this, worker, stage, steps_done] {
          return coordination_.on_snapshot_kept(worker, stage, steps_done);
        });
      }
    }
  }

  void follow(const plans::QuiesceWorker& order) {
    saved_.clear();
    later(order.worker, [this, order] {
      std::vector<plans::InventoryItem> held;
      for (const auto& [layers, step] : held_[order.worker]) {
        held.push_back({step, layers, coordination_.generation_of(step)});
      }
      return coordination_.on_quiesced(order.worker, order.generation, held, now_us_);
    });
  }

  void follow(const plans::AssignPlan& order) {
    for (const plans::LayerMove& move : order.restore.moves) {
      require(has_held_.contains(move.from) || says_it_was_here_.contains(move.from));
    }
    for (const auto& [worker, member] : coordination_.members()) held_[worker].clear();
    for (const plans::StagePlan& stage : order.plan.stages) {
      for (const plans::ReplicaPlan& replica : stage.replicas) {
        has_held_.insert(replica.worker);
        held_[replica.worker].emplace_back(stage.layers, order.restore.first_step);
        const WorkerId worker = replica.worker;
        later(worker, [this, worker, generation = order.plan.generation] {
          return coordination_.on_prepared(worker, generation, now_us_);
        });
      }
    }
    for (WorkerId peer : order.snapshot_peers) has_held_.insert(peer);
  }

  void follow(const plans::StartRun& start) {
    fulfil(start.order, coordination_.steps_done());
    if (!start.order.last) begin_step(coordination_.steps_done());
  }

  void follow(const plans::BroadcastCommit& commit) {
    for (auto& [worker, held] : held_) {
      for (auto& [layers, step] : held) step = commit.order.step + 1;
    }
    // A change of plan may follow at once: what the order asks for belongs to no plan then.
    if (coordination_.generation() != commit.generation) return;
    fulfil(commit.order, commit.order.step + 1);
    if (!commit.order.last) begin_step(commit.order.step + 1);
  }

  void follow(const plans::JournalCommit& order) {
    honest_.push_back(
        [this, step = order.record.step] { return coordination_.on_journaled(step, now_us_); });
  }

  void follow(const plans::ClaimSamples& order) { ready_pipeline(order.pipeline, order.step); }
  void follow(const plans::CommitPipeline& order) {
    if (order.next) ready_pipeline(order.pipeline, order.step + 1);
  }
  void ready_pipeline(uint32_t pipeline, uint64_t step) {
    for (const plans::StagePlan& stage : coordination_.plan()->stages) {
      ready(stage.replicas.at(pipeline).id, step);
    }
  }

  void follow(const plans::AverageWeights& order) {
    for (const plans::GroupMember& member : order.members) {
      const WorkerId worker = plans::replica_of(*coordination_.plan(), member.replica).worker;
      later(worker, [this, worker, replica = member.replica, number = order.number] {
        return coordination_.on_averaged(worker, replica, number, true, now_us_);
      });
    }
  }

  void follow(const plans::RequestPlan& order) {
    honest_.push_back([this, order] {
      const plans::PlanReady answer{order.id, plans::answer(*order.question), 0};
      return coordination_.on_plan_ready(answer, now_us_);
    });
  }

  void follow(const plans::SeekLeftState& order) {
    const uint64_t left = script_.below(order.steps_done + 1);
    honest_.push_back([this, left] { return coordination_.on_left_state(left, now_us_); });
  }

  /// Every stage's own files are there, and nobody else's.
  void follow(const plans::CompleteCheckpoint& order) {
    const size_t stages = coordination_.plan()->stages.size();
    require(saved_[order.steps_done].size() == stages);
    honest_.push_back([this, steps = order.steps_done] {
      return coordination_.on_checkpoint_completed(steps, {}, now_us_);
    });
  }

  /// A stage that is sent comes whole, unless nobody sends it.
  void follow(const plans::ReceiveShard& order) {
    if (script_.below(4) == 0) return;
    for (int64_t layer = 0; layer < order.layers.size(); ++layer) {
      honest_.push_back([this, order] {
        if (order.generation != coordination_.generation()) return Outcome();
        return coordination_.on_shard_layer(order.stage, order.steps_done, now_us_);
      });
    }
    honest_.push_back([this, order] {
      if (order.generation != coordination_.generation()) return Outcome();
      Outcome outcome = coordination_.on_shard_received(order, {}, now_us_);
      if (outcome.is_accepted()) saved_[order.steps_done].insert(order.stage);
      return outcome;
    });
  }

  void follow(const plans::DismissWorker& order) { held_.erase(order.worker); }

  template <class Decision>
  void follow(const Decision&) {}

  void take(const Outcome& outcome, bool is_powerless) {
    if (is_powerless) require(outcome.is_dropped());
    take(outcome.decisions());
  }

  void take(const plans::CoordinatorDecisions& decisions) {
    coordination_.check_invariants();
    require(coordination_.generation() < kGenerationsMax);
    for (const auto& [worker, member] : coordination_.members()) {
      require(worker.value <= plans::kWorkerIdMax);
    }
    for (const plans::CoordinatorDecision& decision : decisions) {
      std::visit([this](const auto& each) { follow(each); }, decision);
    }
  }

  // What liars say -----------------------------------------------------------------------------

  /// A member: mostly a liar.
  WorkerId any_member() {
    const auto& members = coordination_.members();
    if (members.empty()) return {};
    std::vector<WorkerId> liars;
    for (const auto& [worker, member] : members) {
      if (!is_honest(worker)) liars.push_back(worker);
    }
    return liars.empty() ? WorkerId{} : liars[script_.below(liars.size())];
  }

  plans::ReplicaId any_replica() { return {static_cast<uint32_t>(script_.below(6))}; }
  uint64_t any_step() {
    const uint64_t value = script_.next();
    return value < 200 ? coordination_.steps_done() + value % 4 -
                             std::min<uint64_t>(coordination_.steps_done(), 2)
                       : kStepsMax;
  }
  double any_double() {
    constexpr double kDoubles[] = {0,
                                   1,
                                   -1,
                                   std::numeric_limits<double>::quiet_NaN(),
                                   std::numeric_limits<double>::infinity(),
                                   1e300};
    return kDoubles[script_.below(std::size(kDoubles))];
  }

  void lie() {
    const uint8_t kind = script_.next() % 20;
    if (kind < 4) return join_as_liar();
    if (kind < 7) return pass_time();
    if (kind == 7) return lose_anybody();
    const WorkerId liar = any_member();
    if (liar.value == 0) return;
    const bool is_idle = !has_held_.contains(liar) && !says_it_was_here_.contains(liar);
    switch (kind) {
      case 8:
        return fail(liar, is_idle);
      case 9:
        return take(lie_of_step(liar), is_idle);
      case 10:
        if (script_.below(2) == 0) {
          return take(coordination_.on_early_signal(liar, any_replica(), any_step(), now_us_),
                      is_idle);
        }
        return take(
            coordination_.on_reduced(liar, any_replica(), any_step(), any_double(), now_us_),
            is_idle);
      case 11:
        return take(coordination_.on_averaged(liar, any_replica(), script_.number(kStepsMax),
                                              script_.below(2) == 0, now_us_),
                    is_idle);
      case 12:
        return take(coordination_.on_validated(liar, any_replica(), any_step(), any_double(),
                                               script_.number(kStepsMax), now_us_),
                    is_idle);
      case 13:
        return save(liar, is_idle);
      case 14:
        return take(coordination_.on_snapshot_kept(liar, static_cast<int32_t>(script_.below(4)),
                                                   any_step()),
                    is_idle);
      case 15:
        return take(coordination_.on_peer_failure(
                        liar, {static_cast<uint32_t>(script_.number(plans::kWorkerIdMax))},
                        "it lies", now_us_),
                    is_idle);
      case 16:
      case 17:
        return claim_state(liar);
      case 18:
        return take(coordination_.on_prepared(liar, any_generation(), now_us_), is_idle);
      default:
        return take(coordination_.on_leave(liar, "it wants to", now_us_), false);
    }
  }

  uint64_t any_generation() {
    return script_.below(3) > 0 ? coordination_.generation() : script_.number(kGenerationsMax);
  }

  void join_as_liar() {
    if (coordination_.members().size() >= kHonest + kLiars) return;
    plans::JoinRequest request;
    request.host_name = "liar";
    request.process_id = kHonest + 1 + static_cast<uint32_t>(script_.below(kLiars));
    request.data_address = "127.0.0.1:9";
    request.previous.value = static_cast<uint32_t>(script_.number(plans::kWorkerIdMax));
    request.generation = script_.number(kGenerationsMax);
    const Outcome outcome = coordination_.on_join(++connections_, request, now_us_);
    for (const plans::CoordinatorDecision& each : outcome.decisions()) {
      const auto* welcome = std::get_if<plans::WelcomeWorker>(&each);
      if (welcome && request.previous.value != 0) says_it_was_here_.insert(welcome->worker);
    }
    take(outcome, false);
  }

  /// Heartbeats of the honest ones come all the while.
  void pass_time() {
    now_us_ += script_.below(32) * 500 * kMillisecondUs;
    std::vector<WorkerId> alive;
    for (const auto& [worker, member] : coordination_.members()) {
      if (is_honest(worker) || script_.below(2) == 0) alive.push_back(worker);
    }
    for (WorkerId each : alive) {
      plans::WorkerActivity activity;
      activity.works = !is_honest(each);
      activity.action_us = activity.works ? script_.number(uint64_t{1} << 53) : 0;
      activity.steps_done = script_.number(kStepsMax);
      take(coordination_.on_heartbeat(each, activity, now_us_), false);
    }
    take(coordination_.on_timer(now_us_));
  }

  void lose_anybody() {
    const auto& members = coordination_.members();
    if (members.empty()) return;
    auto chosen = members.begin();
    std::advance(chosen, static_cast<int64_t>(script_.below(members.size())));
    const WorkerId worker = chosen->first;
    const uint32_t process = chosen->second.request.process_id;
    take(coordination_.on_worker_lost(worker, absl::UnavailableError("it died"), now_us_), false);
    if (process <= kHonest) join(process, script_.below(2) == 0 ? worker : WorkerId{});
  }

  void fail(WorkerId liar, bool is_idle) {
    const absl::Status why = absl::DataLossError("it lies");
    const bool stays = script_.below(2) == 0;
    const bool is_repeat = stays && coordination_.members().at(liar).has_failed;
    const Outcome outcome = stays ? coordination_.on_worker_failed(liar, why, now_us_)
                                  : coordination_.on_worker_lost(liar, why, now_us_);
    require(outcome.is_accepted() != is_repeat);
    has_complaint_ = has_complaint_ || !is_idle;
    // That of one with a part may stand since before.
    require(has_complaint_ || coordination_.phase() != Phase::kEnded);
    take(outcome, false);
  }

  Outcome lie_of_step(WorkerId liar) {
    plans::ReadyReport report;
    report.replica = any_replica();
    report.step = any_step();
    report.loss_sum = any_double();
    report.norm_squared = std::abs(any_double());
    report.needs_groups = script_.below(2) == 0;
    return coordination_.on_ready(liar, report, now_us_);
  }

  void save(WorkerId liar, bool is_idle) {
    const auto stage = static_cast<int32_t>(script_.below(4));
    const uint64_t step = any_step();
    if (script_.below(4) == 0) {
      return take(coordination_.on_shard_sent(liar, stage, step, now_us_), is_idle);
    }
    if (script_.below(8) == 0) return take(coordination_.on_layers_wanted(liar, now_us_), is_idle);
    const absl::Status status =
        script_.below(2) == 0 ? absl::OkStatus() : absl::UnavailableError("it lies");
    const Outcome outcome = coordination_.on_shard_saved(liar, stage, step, status, now_us_);
    if (outcome.is_accepted() && status.ok()) saved_[step].insert(stage);
    take(outcome, is_idle);
  }

  void claim_state(WorkerId liar) {
    std::vector<plans::InventoryItem> state;
    for (uint64_t count = script_.below(3); count > 0; --count) {
      const uint64_t step = any_step();
      state.push_back({step, {0, 6}, coordination_.generation_of(step)});
    }
    take(coordination_.on_quiesced(liar, any_generation(), std::move(state), now_us_), false);
  }

  Script& script_;
  uint64_t now_us_ = 1;
  plans::Coordination coordination_;
  plans::PeerNumber connections_ = 0;
  std::vector<Answer> honest_;  // What honest ones are about to say.
  std::map<WorkerId, std::vector<std::pair<plans::LayerRange, uint64_t>>> held_;
  std::set<WorkerId> has_held_;          // Whoever has ever had a part in a plan.
  bool has_complaint_ = false;           // A member with a part in a plan has blamed the input.
  std::set<WorkerId> says_it_was_here_;  // On a connection before; nobody can tell.
  std::map<uint64_t, std::set<int32_t>> saved_;  // By steps done: stages of the plan in force.
};

}  // namespace

void run_one(const uint8_t* data, size_t bytes) {
  Script script(data, bytes);
  World(script).run();
}

/// Each is a run of hundreds of events with a full sweep behind each. Under sanitizers, where that
/// takes ten times as long, half of them, of which the replay takes a quarter there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t short_run() { return 10'000; }
#else
size_t short_run() { return 20'000; }
#endif

std::vector<std::vector<uint8_t>> seeds() {
  plans::Rng rng(15);
  std::vector<std::vector<uint8_t>> all;
  for (uint8_t i = 0; i < 12; ++i) {
    std::vector<uint8_t>& bytes = all.emplace_back(1200);
    for (uint8_t& each : bytes) each = static_cast<uint8_t>(rng.bits());
    bytes[0] = i;  // Each of the jobs.
  }
  return all;
}

}  // namespace skein::fuzz
