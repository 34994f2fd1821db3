// Steps that are pulled as tokens: the coordinator's part and the workers' together, every message,
// tensor and piece of work in any order that links and devices allow.

#include "plans/modes/token_steps.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/tokens/token_keys.hpp"
#include "plans/tokens/token_plan.hpp"
#include "plans/worker/token_pass.hpp"

namespace skein::plans {
namespace {

JobSpec job_of(std::vector<int64_t> samples, uint64_t batch) {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.sync.policy = "tokens";
  job.training.micro_batch_size = 1;
  job.training.global_batch_size = static_cast<int64_t>(batch);
  job.parallelism.pipeline_parallel_degree = static_cast<int64_t>(samples.size());
  job.tokens.samples = std::move(samples);
  return job;
}

std::vector<WorkerId> workers_from(uint32_t first, uint32_t count) {
  std::vector<WorkerId> workers;
  for (uint32_t i = 0; i < count; ++i) workers.push_back({first + i});
  return workers;
}

/// A coordinator and workers of one plan, without clocks, bytes or devices. What may happen next is
/// in queues, and one of them is drawn each time.
class TokenCluster {
 public:
  TokenCluster(const JobSpec& job, const std::vector<WorkerId>& workers, uint64_t first_step,
               Rng& rng)
      : job_(job),
        plan_(make_token_plan(job, workers, 1, std::nullopt).value()),
        mode_(job, plan_),
        rng_(rng),
        step_(first_step) {
    for (WorkerId worker : workers) {
      TokenPass::Options options;
      options.samples_per_step = static_cast<uint64_t>(job.training.global_batch_size);
      options.first_step = first_step;
      for (const StagePlan& stage : plan_.stages) {
        for (const ReplicaPlan& replica : stage.replicas) {
          if (replica.worker == worker) options.stages.push_back(role_of(replica, stage));
        }
      }
      if (!options.stages.empty()) {
        workers_.emplace(worker, std::make_unique<TokenPass>(options));
      }
    }
    begin();
  }

  /// One thing happens. True: the step is complete, and the next one has begun.
  bool advance() {
    std::vector<std::function<void()>> possible;
    for (auto& [worker, queue] : orders_) add_front(queue, possible);
    for (auto& [worker, queue] : reports_) add_front(queue, possible);
    for (auto& [worker, queue] : devices_) add_front(queue, possible);
    if (!others_.empty()) {
      possible.push_back([this] {
        const size_t index = rng_.below(others_.size());
        const std::function<void()> next = std::move(others_[index]);
        others_.erase(others_.begin() + static_cast<ptrdiff_t>(index));
        next();
      });
    }
    SKEIN_CHECK(!possible.empty()) << "nothing can happen in step " << step_;
    possible[rng_.below(possible.size())]();
    mode_.check_invariants();
    for (const auto& [worker, pass] : workers_) pass->check_invariants();
    if (!std::exchange(is_complete_, false)) return false;
    check_step();
    ++step_;
    begin();
    return true;
  }

  uint64_t step() const { return step_; }
  /// Forwards of the last complete step, by worker.
  const std::map<WorkerId, int>& shares() const { return shares_; }

 private:
  using Queue = std::deque<std::function<void()>>;

  StageRole role_of(const ReplicaPlan& replica, const StagePlan& stage) const {
    const int32_t number = stage_of(plan_, replica.id);
    StageRole role;
    role.stage = number;
    role.is_first = number == 0;
    role.is_last = number + 1 == static_cast<int32_t>(plan_.stages.size());
    role.rows = replica.rows.count;
    if (stage.replicas.size() > 1) {
      role.groups = {{GroupId{static_cast<uint32_t>(number)}, 2}};
    }
    return role;
  }

  void add_front(Queue& queue, std::vector<std::function<void()>>& possible) {
    if (queue.empty()) return;
    possible.push_back([&queue] {
      const std::function<void()> next = std::move(queue.front());
      queue.pop_front();
      next();
    });
  }

  void begin() {
    done_.clear();
    shares_before_ = std::exchange(shares_, {});
    carry_out(mode_.begin(step_, step_ + 1, 0));
    for (auto& [worker, pass] : workers_) {  // Each when it has applied the commit.
      others_.push_back([this, worker = worker, step = step_] {
        carry_out(worker, workers_.at(worker)->begin(step));
      });
    }
  }

  // What the coordinator decides.

  void carry_out(const ModeDecisions& decisions) {
    for (const CoordinatorDecision& each : decisions.orders) {
      const TokenOrder order = std::get<OrderToken>(each).order;
      const WorkerId to = replica_of(plan_, order.replica).worker;
      const auto deliver = [this, to, order] {
        const int32_t stage = stage_of(plan_, order.replica);
        ProgramOutcome outcome = workers_.at(to)->on_token(stage, order);
        ASSERT_TRUE(outcome.is_accepted()) << "an order is dropped";
        carry_out(to, outcome.decisions());
      };
      orders_[to].push_back(deliver);
    }
    if (!decisions.completed) return;
    EXPECT_FALSE(is_complete_);
    is_complete_ = true;
    EXPECT_EQ(decisions.completed->end_step, step_ + 1);
  }

  void take(const ModeOutcome& outcome) {
    ASSERT_TRUE(outcome.is_accepted()) << "a report is dropped";
    carry_out(outcome.decisions());
  }

  // What a worker commands.

  void carry_out(WorkerId worker, const ProgramCommands& commands) {
    for (const ProgramCommand& command : commands) {
      std::visit([&](const auto& each) { carry_out(worker, each); }, command);
    }
  }
  ReplicaId replica_at(WorkerId worker, int32_t stage) const {
    for (const ReplicaPlan& each : plan_.stages[static_cast<size_t>(stage)].replicas) {
      if (each.worker == worker) return each.id;
    }
    SKEIN_CHECK(false) << worker << " has no stage " << stage;
    return {};
  }
  void work(WorkerId worker, std::function<void()> effect) {
    devices_[worker].push_back([this, worker, effect = std::move(effect)] {
      effect();
      carry_out(worker, workers_.at(worker)->on_work_done());
    });
  }
  void carry_out(WorkerId worker, const RunAction& run) {
    work(worker, [this, worker, run] {
      const bool is_backward = run.action.type == ActionType::kBackward;
      ++done_[{run.action.stage, run.action.microbatch, is_backward}];
      if (!is_backward) ++shares_[worker];
      if (is_backward && run.action.stage > 0) send_gradients(worker, run);
    });
  }
  void send_gradients(WorkerId worker, const RunAction& run) {
    const auto [stage, type, token] = run.action;
    const std::vector<ReplicaId> holders = workers_.at(worker)->holders(stage, token);
    const auto count = static_cast<int32_t>(holders.size());
    for (int32_t i = 0; i < count; ++i) {
      input(replica_of(plan_, holders[static_cast<size_t>(i)]).worker,
            {InputKind::kGradient, run.step, run.action.stage - 1,
             run.action.microbatch * count + i});
    }
  }
  void input(WorkerId to, const InputKey& key) {
    others_.push_back([this, to, key] {
      ProgramOutcome outcome = workers_.at(to)->on_input(key);
      ASSERT_TRUE(outcome.is_accepted()) << "an input is dropped";
      carry_out(to, outcome.decisions());
      EXPECT_TRUE(workers_.at(to)->on_input(key).is_dropped()) << "a repeat";
    });
  }
  void carry_out(WorkerId, const SendOutput& output) {
    const int32_t behind = output.stage + 1;
    const auto rows = [&](int32_t stage) {
      return plan_.stages[static_cast<size_t>(stage)].replicas.front().rows.count;
    };
    const auto inputs = static_cast<int32_t>(rows(behind) / rows(output.stage));
    const InputKey key{InputKind::kActivation, output.step, behind, output.token / inputs};
    if (++parts_[{output.to, key}] == inputs) {
      parts_.erase({output.to, key});
      input(replica_of(plan_, output.to).worker, key);
    }
  }
  void carry_out(WorkerId worker, const RunBegin&) {
    work(worker, [] {});
  }
  void carry_out(WorkerId worker, const RunShare&) {
    work(worker, [] {});
  }
  void carry_out(WorkerId worker, const RunNorm&) {
    work(worker, [] {});
  }
  void carry_out(WorkerId worker, const SendTokenReport& report) {
    reports_[worker].push_back([this, worker, report] {
      const ReplicaId replica = replica_at(worker, report.stage);
      take(mode_.on_token(worker, replica, report.step, report.token, report.event, 0));
      EXPECT_TRUE(
          mode_.on_token(worker, replica, report.step, report.token, report.event, 0).is_dropped())
          << "a repeat";
      EXPECT_TRUE(
          mode_.on_token({99}, replica, report.step, report.token, report.event, 0).is_dropped())
          << "of somebody else";
    });
  }
  void carry_out(WorkerId worker, const SendReady& ready) {
    ReadyReport report;
    report.replica = replica_at(worker, ready.stage);
    report.step = ready.step;
    report.needs_groups = plan_.stages[static_cast<size_t>(ready.stage)].replicas.size() > 1;
    reports_[worker].push_back([this, worker, report] { take(mode_.on_ready(worker, report, 0)); });
  }
  void carry_out(WorkerId worker, const SendReduced& reduced) {
    reports_[worker].push_back([this, worker, reduced] {
      take(mode_.on_reduced(worker, replica_at(worker, reduced.stage), reduced.step, 1, 0));
    });
  }
  void carry_out(WorkerId worker, const RunReduction& reduction) {
    auto& members = reducing_[{reduction.group, reduction.bucket}];
    members.push_back(worker);
    const auto stage = static_cast<size_t>(reduction.group.value);
    if (members.size() < plan_.stages[stage].replicas.size()) return;
    for (WorkerId member : members) {
      others_.push_back([this, member, reduction] {
        ProgramOutcome outcome = workers_.at(member)->on_group_reduced(
            reduction.group, reduction.step, reduction.bucket);
        ASSERT_TRUE(outcome.is_accepted());
        carry_out(member, outcome.decisions());
      });
    }
    reducing_.erase({reduction.group, reduction.bucket});
  }
  void carry_out(WorkerId, const auto&) { ADD_FAILURE() << "a command that no step has"; }

  /// Each token of each stage has had one forward and one backward, whoever had it.
  void check_step() {
    size_t expected = 0;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const auto stage = static_cast<int32_t>(s);
      for (int32_t token = 0; token < passes_of_stage(plan_, stage); ++token) {
        for (bool is_backward : {false, true}) {
          EXPECT_EQ((done_[{stage, token, is_backward}]), 1) << s << "." << token;
          ++expected;
        }
      }
    }
    EXPECT_EQ(done_.size(), expected);
    EXPECT_TRUE(parts_.empty() && reducing_.empty());
  }

  const JobSpec job_;
  const Plan plan_;
  TokenSteps mode_;
  Rng& rng_;
  uint64_t step_;
  bool is_complete_ = false;
  std::map<WorkerId, std::unique_ptr<TokenPass>> workers_;
  std::map<WorkerId, Queue> orders_, reports_, devices_;  // Each in order.
  std::vector<std::function<void()>> others_;             // In any order.
  std::map<std::tuple<int32_t, int32_t, bool>, int> done_;
  std::map<WorkerId, int> shares_, shares_before_;
  std::map<std::pair<ReplicaId, InputKey>, int32_t> parts_;
  std::map<std::pair<GroupId, int32_t>, std::vector<WorkerId>> reducing_;
};

JobSpec random_job(Rng& rng) {
  const size_t levels = 1 + rng.below(3);
  std::vector<int64_t> samples = {1};
  while (samples.size() < levels) samples.push_back(samples.back() * (1 + rng.below(3)));
  const uint64_t batch = static_cast<uint64_t>(samples.back()) * (1 + rng.below(5));
  JobSpec job = job_of(samples, batch);
  for (size_t level = 0; level < levels; ++level) {
    job.tokens.workers.push_back(static_cast<int64_t>(rng.below(3)));
  }
  job.tokens.depth_first = rng.below(2) == 0;
  job.tokens.own_buckets = rng.below(2) == 0;
  job.tokens.ahead = 1 + static_cast<int64_t>(rng.below(3));
  return job;
}

TEST(TokenSteps, EachSamplePassesEachStageOnceWhateverComesFirst) {
  Rng rng(7, 1);
  uint64_t events = 0, steps = 0, changes = 0;
  while (events < 100'000) {
    const JobSpec job = random_job(rng);
    ASSERT_EQ(check_tokens(job), absl::OkStatus());
    uint64_t step = rng.below(100);
    // Somebody is lost or joins: the step in progress is begun again, by others.
    for (int plan = 0; plan < 3; ++plan, ++changes) {
      TokenCluster cluster(job,
                           workers_from(1 + static_cast<uint32_t>(rng.below(3)),
                                        1 + static_cast<uint32_t>(rng.below(5))),
                           step, rng);
      for (uint64_t left = 20 + rng.below(400); left > 0; --left, ++events) {
        if (cluster.advance()) ++steps;
        if (testing::Test::HasFailure()) return;
      }
      step = cluster.step();
    }
  }
  EXPECT_GT(steps, 500);
  EXPECT_GT(changes, 100);
}

/// The first worker's device is the only one that works: all tokens come to it.
TEST(TokenSteps, WhoIsFasterComesToMore) {
  const JobSpec job = job_of({1}, 16);
  const Plan plan = make_token_plan(job, workers_from(1, 2), 1, std::nullopt).value();
  TokenSteps mode(job, plan);
  std::map<WorkerId, std::deque<TokenOrder>> granted;
  auto take = [&](const ModeDecisions& decisions) {
    for (const CoordinatorDecision& each : decisions.orders) {
      const TokenOrder& order = std::get<OrderToken>(each).order;
      if (order.kind != TokenOrder::Kind::kCompute) continue;
      granted[replica_of(plan, order.replica).worker].push_back(order);
    }
  };
  EXPECT_TRUE(mode.begin(0, 1, 0).orders.empty()) << "nobody has asked";
  for (uint32_t worker : {1, 2}) {
    const ModeOutcome begun = mode.on_token({worker}, {worker - 1}, 0, 0, TokenEvent::kBegun, 0);
    ASSERT_TRUE(begun.is_accepted());
    take(begun.decisions());
  }
  EXPECT_EQ(granted[{1}].size(), 2) << "two ahead";
  EXPECT_EQ(granted[{2}].size(), 2);
  int computed = 0;
  while (!granted[{1}].empty()) {
    const TokenOrder order = granted[{1}].front();
    granted[{1}].pop_front();
    const ModeOutcome outcome =
        mode.on_token({1}, order.replica, 0, order.token, TokenEvent::kDone, 0);
    ASSERT_TRUE(outcome.is_accepted());
    take(outcome.decisions());
    ++computed;
  }
  EXPECT_EQ(computed, 14) << "all but what the other one holds";
  EXPECT_EQ(granted[{2}].size(), 2);
}

/// Steps of one sub-model by workers 1, 2, ..., whose messages take no time.
class TimedSteps {
 public:
  TimedSteps(int64_t samples, std::vector<uint64_t> token_us)
      : job_(job_of({1}, static_cast<uint64_t>(samples))),
        token_us_(std::move(token_us)),
        plan_(make_token_plan(job_, workers_from(1, static_cast<uint32_t>(token_us_.size())), 1,
                              std::nullopt)
                  .value()),
        mode_(job_, plan_) {}

  void set_token_us(size_t worker, uint64_t us) { token_us_[worker] = us; }

  /// When the last token is done, from when all have begun.
  uint64_t run() {
    first_.assign(token_us_.size(), {});
    granted_.assign(token_us_.size(), {});
    std::vector<uint64_t> until_us(token_us_.size());
    mode_.begin(step_, step_ + 1, 0);
    for (size_t w = 0; w < token_us_.size(); ++w) tell(w, 0, TokenEvent::kBegun);
    for (size_t w = 0; w < token_us_.size(); ++w) {
      for (const int32_t token : granted_[w]) first_[w].push_back(token);
      until_us[w] = token_us_[w];
    }
    uint64_t now_us = 0;
    for (int64_t left = job_.training.global_batch_size; left > 0; --left) {
      size_t next = token_us_.size();
      for (size_t w = 0; w < token_us_.size(); ++w) {
        if (granted_[w].empty()) continue;
        if (next == token_us_.size() || until_us[w] < until_us[next]) next = w;
      }
      SKEIN_CHECK(next < token_us_.size()) << left << " tokens are with nobody";
      now_us = until_us[next];
      const int32_t token = granted_[next].front();
      granted_[next].pop_front();
      for (size_t w = 0; w < token_us_.size(); ++w) {  // Who has nothing begins with what it gets.
        if (w == next || granted_[w].empty()) until_us[w] = now_us + token_us_[w];
      }
      tell(next, token, TokenEvent::kDone);
    }
    end_step();
    return now_us;
  }
  /// What the worker was granted when it began the last step.
  const std::vector<int32_t>& first_of(size_t worker) const { return first_[worker]; }

 private:
  void tell(size_t worker, int32_t token, TokenEvent event) {
    const auto number = static_cast<uint32_t>(worker);
    const ModeOutcome outcome = mode_.on_token({number + 1}, {number}, step_, token, event, 0);
    ASSERT_TRUE(outcome.is_accepted());
    mode_.check_invariants();
    for (const CoordinatorDecision& each : outcome.decisions().orders) {
      const TokenOrder& order = std::get<OrderToken>(each).order;
      if (order.kind != TokenOrder::Kind::kCompute) continue;
      granted_[replica_of(plan_, order.replica).worker.value - 1].push_back(order.token);
    }
  }
  void end_step() {
    for (const ReplicaPlan& replica : plan_.stages.front().replicas) {
      ReadyReport report;
      report.replica = replica.id;
      report.step = step_;
      report.needs_groups = true;
      ASSERT_TRUE(mode_.on_ready(replica.worker, report, 0).is_accepted());
    }
    for (const ReplicaPlan& replica : plan_.stages.front().replicas) {
      ASSERT_TRUE(mode_.on_reduced(replica.worker, replica.id, step_, 1, 0).is_accepted());
    }
    ++step_;
  }

  const JobSpec job_;
  std::vector<uint64_t> token_us_;  // By worker.
  const Plan plan_;
  TokenSteps mode_;
  uint64_t step_ = 0;
  std::vector<std::deque<int32_t>> granted_;  // By worker; the first one is under way.
  std::vector<std::vector<int32_t>> first_;
};

TEST(TokenSteps, BucketsAreAsLargeAsWhatEachCameToInTheStepBefore) {
  TimedSteps steps(16, {1, 20});
  steps.run();
  EXPECT_EQ(steps.first_of(0).front(), 0);
  EXPECT_EQ(steps.first_of(1).front(), 8) << "at first all are alike";
  EXPECT_EQ(steps.run(), 20u);
  EXPECT_EQ(steps.first_of(0).front(), 0);
  EXPECT_EQ(steps.first_of(1).front(), 14) << "it came to two";
}

/// With ten times as long for a token as the seven others it has one of 64 in the time in which
/// they have nine each.
TEST(TokenSteps, ASlowWorkerIsGrantedNothingAheadThatOthersWouldEndSooner) {
  TimedSteps steps(64, {10, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(steps.run(), 20u) << "two ahead, as nothing is known of it yet";
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(steps.run(), 10u);
    EXPECT_EQ(steps.first_of(0).size(), 1u);
    EXPECT_EQ(steps.first_of(1).size(), 2u);
  }
  steps.set_token_us(0, 1);
  EXPECT_EQ(steps.run(), 8u);
  EXPECT_EQ(steps.run(), 8u);
  EXPECT_EQ(steps.first_of(0).size(), 2u) << "it is as fast as the others again";
}

TEST(TokenSteps, AReportIsTakenOnlyWhenItsStageIsReduced) {
  const JobSpec job = job_of({1, 1}, 1);
  const Plan plan = make_token_plan(job, workers_from(1, 1), 1, std::nullopt).value();
  TokenSteps mode(job, plan);
  mode.begin(4, 5, 0);
  ReadyReport report;
  report.step = 4;
  EXPECT_TRUE(mode.on_ready({1}, report, 0).is_dropped());
  const auto tell = [&](uint32_t replica, uint64_t step, int32_t token, TokenEvent event) {
    return mode.on_token({1}, {replica}, step, token, event, 0).why_dropped();
  };
  using enum TokenEvent;
  EXPECT_TRUE(tell(0, 4, 0, kOutput)) << "it has not asked";
  EXPECT_EQ(tell(0, 4, 0, kBegun), std::nullopt);
  EXPECT_EQ(tell(0, 4, 0, kBegun), DropReason::kRepeated);
  EXPECT_EQ(tell(0, 3, 0, kOutput), DropReason::kStale);
  EXPECT_EQ(tell(0, 5, 0, kOutput), DropReason::kEarly);
  EXPECT_EQ(tell(9, 4, 0, kOutput), DropReason::kUnknown);
  EXPECT_EQ(tell(0, 4, 7, kDone), DropReason::kUnknown);
  EXPECT_EQ(tell(0, 4, 0, kDone), DropReason::kEarly) << "it has no output yet";
  EXPECT_TRUE(mode.awaits({0}));
  EXPECT_EQ(tell(0, 4, 0, kOutput), std::nullopt);
  EXPECT_EQ(tell(0, 4, 0, kDone), std::nullopt) << "it may know of the other one's end before us";
  EXPECT_EQ(tell(0, 4, 0, kDone), DropReason::kRepeated);
  EXPECT_EQ(tell(1, 4, 0, kOutput), DropReason::kUnexpected) << "that is the last stage's end";
  EXPECT_EQ(tell(1, 4, 0, kDone), std::nullopt);
  EXPECT_EQ(tell(1, 4, 0, kDone), DropReason::kRepeated);
  ASSERT_TRUE(mode.on_ready({1}, report, 0).is_accepted());
  report.replica = {1};
  const ModeOutcome last = mode.on_ready({1}, report, 0);
  ASSERT_TRUE(last.is_accepted());
  EXPECT_TRUE(last.decisions().completed.has_value());
  EXPECT_FALSE(mode.awaits({0}));
}

}  // namespace
}  // namespace skein::plans
