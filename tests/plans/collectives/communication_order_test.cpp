#include "plans/collectives/communication_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "plans/base/rng.hpp"
#include "plans/collectives/collective_order.hpp"
#include "plans/collectives/link_tensors.hpp"
#include "plans/plan/plan_ranks.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kRows = 6;
constexpr int32_t kBuckets = 2;

/// `replicas` [ranks] of each stage of the rank; stage s is on rank s mod R.
Plan make_plan(ScheduleKind kind, const std::vector<int32_t>& replicas, size_t per_rank,
               int32_t microbatches) {
  Plan plan;
  plan.microbatch_count = microbatches;
  plan.microbatch_rows = kRows;
  const size_t ranks = replicas.size();
  for (size_t s = 0; s < ranks * per_rank; ++s) {
    StagePlan stage;
    stage.layers = {static_cast<int64_t>(s), static_cast<int64_t>(s) + 1};
    uint32_t worker = 1;
    for (size_t rank = 0; rank < s % ranks; ++rank) worker += static_cast<uint32_t>(replicas[rank]);
    for (int32_t i = 0; i < replicas[s % ranks]; ++i) {
      stage.replicas.push_back({{},
                                WorkerId{worker++},
                                even_rows(kRows, i, replicas[s % ranks]),
                                static_cast<int32_t>(s % ranks)});
    }
    plan.stages.push_back(std::move(stage));
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, ranks > 1);
  EXPECT_EQ(set_schedule(plan, kind), absl::OkStatus());
  EXPECT_EQ(validate(plan, static_cast<int64_t>(ranks * per_rank), ranks > 1), absl::OkStatus());
  return plan;
}

PlanPart part_of(const Plan& plan, WorkerId worker, const std::vector<ActionTimes>& times = {}) {
  return PlanParts(plan, {.devices = true}, {}, times).of(worker);
}
CommunicationPlaces places_of(const Plan& plan, WorkerId worker,
                              const std::vector<ActionTimes>& times = {}) {
  return communication_places(part_of(plan, worker, times), worker);
}

std::set<WorkerId> workers_of_plan(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& each : stage.replicas) workers.insert(each.worker);
  }
  return workers;
}

using SharedOperation = std::pair<std::optional<GroupId>, TransferId>;

/// What the worker does with others, in the order that its part of the plan gives it.
std::vector<SharedOperation> own_order(const Plan& plan, WorkerId worker,
                                       const std::vector<ActionTimes>& times) {
  const CommunicationPlaces places = places_of(plan, worker, times);
  std::vector<SharedOperation> order(places.groups.size() + places.transfers.size());
  for (const auto& [group, place] : places.groups) order.at(place) = {group, {}};
  for (const auto& [id, place] : places.transfers) order.at(place) = {std::nullopt, id};
  return order;
}

/// One order of all operations, of which each worker keeps its own: fails if there is none.
std::map<SharedOperation, uint64_t> merged_order(const Plan& plan,
                                                 const std::vector<ActionTimes>& times) {
  std::map<SharedOperation, std::set<SharedOperation>> behind;
  std::map<SharedOperation, size_t> before;
  for (WorkerId worker : workers_of_plan(plan)) {
    const std::vector<SharedOperation> order = own_order(plan, worker, times);
    for (size_t i = 0; i < order.size(); ++i) {
      before.try_emplace(order[i], 0);
      if (i > 0 && behind[order[i - 1]].insert(order[i]).second) ++before[order[i]];
    }
  }
  std::deque<SharedOperation> next;
  for (const auto& [operation, count] : before) {
    if (count == 0) next.push_back(operation);
  }
  std::map<SharedOperation, uint64_t> merged;
  for (; !next.empty(); next.pop_front()) {
    merged.emplace(next.front(), merged.size());
    for (const SharedOperation& each : behind[next.front()]) {
      if (--before[each] == 0) next.push_back(each);
    }
  }
  EXPECT_EQ(merged.size(), before.size()) << "workers contradict each other";
  return merged;
}

enum class Rule {
  kPlaces,            // What is tested.
  kAsItBecomesReady,  // Each device begins what its own list comes to next.
  kRandomPlaces,      // One order on all, but any.
};

/// The workers of a plan, whose transfers and sums wait inside for all of their members. What runs
/// next is the caller's choice; operations begin and end as soon as they can.
class OrderedWorld {
 public:
  OrderedWorld(const Plan& plan, Rule rule, uint64_t steps, uint64_t seed = 1,
               const std::vector<ActionTimes>& times = {})
      : plan_(&plan), rule_(rule), steps_(steps) {
    for (const StagePlan& stage : plan.stages) {
      for (const ReplicaPlan& each : stage.replicas) workers_[each.worker].rank = stage.rank();
    }
    std::vector<uint64_t> numbers;
    const std::map<SharedOperation, uint64_t> order = merged_order(plan, times);
    numbers.resize(order.size() + plan.groups.size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
    Rng rng(seed);
    for (size_t i = numbers.size(); rule == Rule::kRandomPlaces && i > 1; --i) {
      std::swap(numbers[i - 1], numbers[rng.below(i)]);
    }
    for (const auto& [operation, place] : order) {
      const auto& [group, id] = operation;
      if (group) continue;
      const WorkerId from = replica_of(plan, id.from).worker, to = replica_of(plan, id.to).worker;
      if (from == to) continue;  // A copy on one device waits for nobody.
      transfers_[id] = {0, numbers[place], 0};
      members_[numbers[place]] = {from, to};
    }
    for (size_t group = 0; group < plan.groups.size(); ++group) {
      const auto place = order.find({plan.groups[group].id, {}});  // None: of one member.
      sums_.push_back({0, numbers[place == order.end() ? order.size() + group : place->second], 0});
      for (ReplicaId member : plan.groups[group].members) {
        members_[sums_.back().place].insert(replica_of(plan, member).worker);
      }
    }
    for (auto& [id, worker] : workers_) begin_step(id);
    settle();
  }

  std::vector<WorkerId> able() const {
    std::vector<WorkerId> able;
    for (const auto& [id, worker] : workers_) {
      if (can_run(id, worker)) able.push_back(id);
    }
    return able;
  }

  /// The next action of a worker, or its next step.
  void run(WorkerId id) {
    Worker& worker = workers_.at(id);
    const ActionList& actions = list_of(worker);
    if (worker.next == actions.size()) {
      ++worker.step;
      worker.next = 0;
      begin_step(id);
    } else {
      pass_on(id, actions[worker.next]);
      ++worker.next;
      post_receives(id);
    }
    settle();
  }

  bool is_done() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [&](const auto& each) {
                         return each.second.step + 1 == steps_ &&
                                each.second.next == list_of(each.second).size();
                       }) &&
           ended_.size() == steps_ * operation_count();
  }

  size_t operation_count() const {
    size_t count = transfers_.size();
    for (const CollectiveKey& each : sums_) {
      if (members_.at(each.place).size() > 1) count += kBuckets;
    }
    return count;
  }

  /// Tensors that the worker has of those that pass over the link behind stage `front`.
  int64_t tensors_held(WorkerId id, int32_t front) const {
    const Worker& worker = workers_.at(id);
    int64_t held = 0;
    for (size_t i = 0; i < list_of(worker).size(); ++i) {
      const Action& action = list_of(worker)[i];
      if (action.stage != front && action.stage != front + 1) continue;
      const bool is_sent = (action.type == ActionType::kForward) == (action.stage == front);
      bool is_begun = false, has_ended = true;
      for (const CollectiveKey& key : transfers_of(id, action, !is_sent, worker.step)) {
        const bool ended = ended_.contains(key);
        is_begun |= ended || worker.running == key;
        has_ended &= ended;
      }
      if (action.type == ActionType::kBackwardWeight) continue;
      if (is_sent ? i < worker.next && !has_ended : is_begun && i >= worker.next) ++held;
    }
    return held;
  }

  using Position = std::pair<std::vector<size_t>, std::set<CollectiveKey>>;
  Position position() const {
    Position position;
    for (const auto& [id, worker] : workers_) position.first.push_back(worker.next);
    position.second = ended_;
    return position;
  }

 private:
  struct Worker {
    int32_t rank = 0;
    uint64_t step = 0;
    size_t next = 0;
    CollectiveOrder order;
    std::deque<CollectiveKey> queue;  // kAsItBecomesReady
    std::optional<CollectiveKey> running;
  };

  const ActionList& list_of(const Worker& worker) const {
    return plan_->actions[static_cast<size_t>(worker.rank)];
  }

  const ReplicaPlan& replica_on(int32_t stage, WorkerId worker) const {
    const auto& replicas = plan_->stages[static_cast<size_t>(stage)].replicas;
    return *std::find_if(replicas.begin(), replicas.end(),
                         [&](const ReplicaPlan& each) { return each.worker == worker; });
  }

  /// What an action waits for (`inwards`) or makes, in a step.
  std::vector<CollectiveKey> transfers_of(WorkerId id, const Action& action, bool inwards,
                                          uint64_t step) const {
    std::vector<CollectiveKey> keys;
    if (action.type == ActionType::kBackwardWeight) return keys;
    const bool is_forward = action.type == ActionType::kForward;
    const ReplicaId own = replica_on(action.stage, id).id;
    for (const Route& route : routes_from(*plan_, own, is_forward == inwards ? -1 : +1)) {
      const TransferId transfer = inwards ? TransferId{route.to, own, action.microbatch}
                                          : TransferId{own, route.to, action.microbatch};
      const auto found = transfers_.find(transfer);
      if (found != transfers_.end()) keys.push_back({step, found->second.place, 0});
    }
    return keys;
  }

  void begin_step(WorkerId id) {
    Worker& worker = workers_.at(id);
    if (rule_ == Rule::kAsItBecomesReady) return post_receives(id);
    for (const auto& [place, members] : members_) {
      if (!members.contains(id) || members.size() < 2) continue;
      const bool is_sum = std::any_of(sums_.begin(), sums_.end(),
                                      [&](const auto& sum) { return sum.place == place; });
      for (int32_t i = 0; i < (is_sum ? kBuckets : 1); ++i) {
        worker.order.expect({worker.step, place, i});
      }
    }
    for (const Action& action : list_of(worker)) {  // There is memory for all of them.
      for (const CollectiveKey& key : transfers_of(id, action, true, worker.step)) {
        on_ready(id, key);
      }
    }
  }

  void post_receives(WorkerId id) {
    const Worker& worker = workers_.at(id);
    if (rule_ != Rule::kAsItBecomesReady || worker.next == list_of(worker).size()) return;
    const Action& action = list_of(worker)[worker.next];
    for (const CollectiveKey& key : transfers_of(id, action, true, worker.step)) on_ready(id, key);
  }

  bool can_run(WorkerId id, const Worker& worker) const {
    const ActionList& actions = list_of(worker);
    if (worker.next == actions.size()) {  // A commit lets it go on: all have ended the step.
      const size_t all = (worker.step + 1) * operation_count();
      const bool is_committed =
          std::all_of(workers_.begin(), workers_.end(), [&](const auto& each) {
            return each.second.step > worker.step ||
                   each.second.next == list_of(each.second).size();
          });
      return worker.step + 1 < steps_ && is_committed && ended_.size() >= all;
    }
    const auto inputs = transfers_of(id, actions[worker.next], true, worker.step);
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](const CollectiveKey& key) { return ended_.contains(key); });
  }

  void pass_on(WorkerId id, const Action& action) {
    const Worker& worker = workers_.at(id);
    for (const CollectiveKey& key : transfers_of(id, action, false, worker.step)) on_ready(id, key);
    const ActionList& actions = list_of(worker);
    const bool is_last =
        std::none_of(actions.begin() + static_cast<ptrdiff_t>(worker.next) + 1, actions.end(),
                     [&](const Action& each) { return each.stage == action.stage; });
    if (!is_last) return;
    const ReplicaId own = replica_on(action.stage, id).id;
    for (size_t group = 0; group < plan_->groups.size(); ++group) {
      const auto& members = plan_->groups[group].members;
      const bool is_member = std::find(members.begin(), members.end(), own) != members.end();
      if (!is_member || members_.at(sums_[group].place).size() < 2) continue;
      for (int32_t i = 0; i < kBuckets; ++i) on_ready(id, {worker.step, sums_[group].place, i});
    }
  }

  void on_ready(WorkerId id, const CollectiveKey& key) {
    Worker& worker = workers_.at(id);
    if (rule_ == Rule::kAsItBecomesReady) {
      worker.queue.push_back(key);
    } else if (const auto begun = worker.order.on_ready(key)) {
      EXPECT_FALSE(worker.running);
      worker.running = begun;
    }
  }

  /// Ends what all members have begun, until nothing can.
  void settle() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (auto& [id, worker] : workers_) {
        if (!worker.running && !worker.queue.empty()) {
          worker.running = worker.queue.front();
          worker.queue.pop_front();
        }
      }
      for (auto& [id, worker] : workers_) {
        if (!worker.running) continue;
        const CollectiveKey key = *worker.running;
        const std::set<WorkerId>& members = members_.at(key.place);
        const bool ends = std::all_of(members.begin(), members.end(), [&](WorkerId member) {
          return workers_.at(member).running == key;
        });
        if (!ends) continue;
        has_changed = true;
        ended_.insert(key);
        for (WorkerId member : members) {
          Worker& each = workers_.at(member);
          each.running.reset();
          if (rule_ != Rule::kAsItBecomesReady) each.running = each.order.on_end(key);
        }
      }
    }
  }

  const Plan* plan_;
  Rule rule_;
  uint64_t steps_;
  std::map<WorkerId, Worker> workers_;
  std::map<TransferId, CollectiveKey> transfers_;
  std::vector<CollectiveKey> sums_;                 // [groups]
  std::map<uint64_t, std::set<WorkerId>> members_;  // By place.
  std::set<CollectiveKey> ended_;
};

/// Whether some order in which workers get on leads to a state in which nobody can. All are tried.
bool can_get_stuck(const Plan& plan, Rule rule) {
  std::set<OrderedWorld::Position> seen;
  std::vector<OrderedWorld> open = {OrderedWorld(plan, rule, 1)};
  while (!open.empty()) {
    const OrderedWorld world = std::move(open.back());
    open.pop_back();
    const auto able = world.able();
    if (able.empty() && !world.is_done()) return true;
    for (WorkerId id : able) {
      OrderedWorld next = world;
      next.run(id);
      if (seen.insert(next.position()).second) open.push_back(std::move(next));
    }
  }
  return false;
}

bool gets_stuck(const Plan& plan, Rule rule, uint64_t seed,
                const std::vector<ActionTimes>& times = {}) {
  Rng rng(seed);
  OrderedWorld world(plan, rule, 2, seed, times);
  for (auto able = world.able(); !able.empty(); able = world.able()) {
    // Some seeds let one worker run as far as it can.
    world.run(seed % 3 == 0 ? able[seed % able.size()] : able[rng.below(able.size())]);
  }
  return !world.is_done();
}

constexpr ScheduleKind kStraightKinds[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                           ScheduleKind::k1F1BPB, ScheduleKind::kZBH1,
                                           ScheduleKind::kZBH2};

TEST(CommunicationOrder, NoOrderOfArrivalLeavesASmallPipelineStuck) {
  int stuck_without = 0;
  for (ScheduleKind kind : kStraightKinds) {
    for (const std::vector<int32_t>& replicas :
         {std::vector<int32_t>{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 1, 1}, {1, 2, 1}}) {
      for (int32_t microbatches : {1, 2, 3}) {
        const Plan plan = make_plan(kind, replicas, 1, microbatches);
        ASSERT_FALSE(can_get_stuck(plan, Rule::kPlaces))
            << to_text(kind) << " " << replicas.size() << " stages, " << microbatches;
        if (can_get_stuck(plan, Rule::kAsItBecomesReady)) ++stuck_without;
      }
    }
  }
  EXPECT_GT(stuck_without, 10) << "without the rule some must deadlock, or this tests nothing";
}

TEST(CommunicationOrder, EveryScheduleOfManyStagesAndReplicasEndsTwoSteps) {
  int stuck_without = 0, stuck_at_random = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Rng rng(seed);
    const bool is_looped = rng.below(3) == 0;
    std::vector<int32_t> replicas(2 + rng.below(is_looped ? 2 : 4));
    for (int32_t& count : replicas) count = static_cast<int32_t>(1 + rng.below(3));
    const auto microbatches = static_cast<int32_t>(1 + rng.below(6));
    ScheduleKind kind = kStraightKinds[rng.below(std::size(kStraightKinds))];
    if (is_looped)
      kind = rng.below(2) == 0 ? ScheduleKind::kInterleaved1F1B : ScheduleKind::kGreedy;
    const Plan plan = make_plan(kind, replicas, is_looped ? 2 : 1, microbatches);
    ASSERT_FALSE(gets_stuck(plan, Rule::kPlaces, seed)) << to_text(kind) << ", seed " << seed;
    if (gets_stuck(plan, Rule::kAsItBecomesReady, seed)) ++stuck_without;
    if (gets_stuck(plan, Rule::kRandomPlaces, seed)) ++stuck_at_random;
  }
  EXPECT_GT(stuck_without, 100);
  EXPECT_GT(stuck_at_random, 100) << "one order is not enough: it must follow the schedule";
}

TEST(CommunicationOrder, NoMeasuredTimesLeaveAPipelineStuck) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::vector<int32_t> replicas(2 + rng.below(4));
    for (int32_t& count : replicas) count = static_cast<int32_t>(1 + rng.below(3));
    const ScheduleKind kind = kStraightKinds[rng.below(std::size(kStraightKinds))];
    const Plan plan = make_plan(kind, replicas, 1, static_cast<int32_t>(1 + rng.below(6)));
    std::vector<ActionTimes> times(plan.stages.size());
    for (ActionTimes& each : times) {
      each = {1 + rng.below(100), 1 + rng.below(100), 1 + rng.below(100)};
    }
    ASSERT_FALSE(gets_stuck(plan, Rule::kPlaces, seed, times))
        << to_text(kind) << ", seed " << seed;
  }
}

TEST(CommunicationOrder, FollowsTheTimesOfTheStagesWhereAllAreKnown) {
  const Plan plan = make_plan(ScheduleKind::k1F1B, {1, 1}, 1, 3);
  const TransferId second{{0}, {1}, 1}, gradient{{1}, {0}, 0};
  auto gradient_is_first = [&](const std::vector<ActionTimes>& times) {
    const CommunicationPlaces places = places_of(plan, {1}, times);
    return places.transfers.at(gradient) < places.transfers.at(second);
  };
  EXPECT_FALSE(gradient_is_first({}));
  EXPECT_FALSE(gradient_is_first({{10, 10, 10}, {}})) << "those of the other stage are not known";
  EXPECT_TRUE(gradient_is_first({{10, 10, 10}, {1, 1, 1}}))
      << "it is there before the slow stage has its second output";
}

int64_t most_tensors(const Plan& plan, int32_t front, WorkerId worker, ReplicaId own) {
  const PlanPart part = part_of(plan, worker);
  return link_tensors_max(part, communication_places(part, worker), front, own);
}

TEST(LinkTensors, ALinkNeverHoldsMoreThanItsMost) {
  int64_t reached = 0, ends = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const bool is_looped = rng.below(4) == 0;
    std::vector<int32_t> replicas(2 + rng.below(3));
    for (int32_t& count : replicas) count = static_cast<int32_t>(1 + rng.below(3));
    const auto microbatches = static_cast<int32_t>(1 + rng.below(6));
    const ScheduleKind kind = is_looped ? ScheduleKind::kInterleaved1F1B
                                        : kStraightKinds[rng.below(std::size(kStraightKinds))];
    const Plan plan = make_plan(kind, replicas, is_looped ? 2 : 1, microbatches);
    struct End {
      int32_t front = 0;
      WorkerId worker;
      int64_t most = 0, seen = 0;
    };
    std::vector<End> all;
    for (const WantedGroup& link : wanted_groups(plan, ReducerKind::kSum)) {
      if (link.use != DeviceUse::kActivations) continue;
      for (int32_t stage : {link.front, link.front + 1}) {
        for (const ReplicaPlan& own : plan.stages[static_cast<size_t>(stage)].replicas) {
          all.push_back(
              {link.front, own.worker, most_tensors(plan, link.front, own.worker, own.id), 0});
        }
      }
    }
    OrderedWorld world(plan, Rule::kPlaces, 1, seed);
    for (auto able = world.able(); !able.empty(); able = world.able()) {
      for (End& end : all) {
        end.seen = std::max(end.seen, world.tensors_held(end.worker, end.front));
      }
      world.run(seed % 3 == 0 ? able[seed % able.size()] : able[rng.below(able.size())]);
    }
    ASSERT_TRUE(world.is_done());
    for (const End& end : all) {
      ASSERT_LE(end.seen, end.most) << to_text(kind) << ", seed " << seed;
      ASSERT_LE(end.most, 2 * microbatches);
      ++ends;
      if (end.seen + 2 >= end.most) ++reached;
    }
  }
  EXPECT_GT(reached, ends / 2) << "a bound that nothing comes near is no use";
}

/// By what is held while each transfer runs, one after the other.
int64_t held_max_of_each(const std::vector<PassingTensor>& passing) {
  size_t transfers = 0, actions = 0;
  for (const PassingTensor& each : passing) {
    transfers = std::max(transfers, each.last + 1);
    actions = std::max(actions, each.action + 1);
  }
  int64_t most = 0;
  for (size_t begun = 0; begun <= transfers; ++begun) {
    size_t ended = 0, submitted = actions;
    for (const PassingTensor& each : passing) {
      if (each.is_sent && each.first <= begun) ended = std::max(ended, each.action + 1);
      if (!each.is_sent && each.last >= begun) submitted = std::min(submitted, each.action);
    }
    most = std::max<int64_t>(
        most, std::count_if(passing.begin(), passing.end(), [&](const PassingTensor& each) {
          return each.is_sent ? each.action < submitted && each.last + 1 >= begun
                              : each.first <= begun && each.action >= ended;
        }));
  }
  return most;
}

TEST(LinkTensors, OneSweepFindsWhatEachTransferHolds) {
  EXPECT_EQ(held_max({}), 0);
  std::set<int64_t> found;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    std::vector<PassingTensor> passing(1 + rng.below(8));
    for (PassingTensor& each : passing) {
      const size_t first = rng.below(10);
      each = {rng.below(2) == 0, rng.below(12), first, first + rng.below(4)};
    }
    const int64_t most = held_max(passing);
    ASSERT_EQ(most, held_max_of_each(passing)) << "seed " << seed;
    found.insert(most);
  }
  EXPECT_GT(found.size(), 5u) << "or this tests nothing";
}

/// With work for each pair of them this would take a minute.
TEST(LinkTensors, AreFoundAtOnceForAsManyMicrobatchesAsThereMayBe) {
  constexpr int32_t kMicrobatches = 65'536;
  for (const auto& [kind, most] :
       {std::pair{ScheduleKind::kGPipe, int64_t{kMicrobatches}}, {ScheduleKind::k1F1B, 2}}) {
    const Plan plan = make_plan(kind, {1, 1}, 1, kMicrobatches);
    EXPECT_EQ(most_tensors(plan, 0, {1}, {0}), most) << to_text(kind);
  }
}

TEST(LinkTensors, GPipeHoldsAllMicrobatchesAndEarlyBackwardsAFew) {
  auto most = [](ScheduleKind kind, int32_t microbatches, int32_t stage) {
    const Plan plan = make_plan(kind, {1, 1}, 1, microbatches);
    const ReplicaPlan& own = plan.stages[static_cast<size_t>(stage)].replicas[0];
    return most_tensors(plan, 0, own.worker, own.id);
  };
  EXPECT_EQ(most(ScheduleKind::kGPipe, 8, 0), 8);
  EXPECT_EQ(most(ScheduleKind::k1F1B, 8, 0), 2);
  EXPECT_EQ(most(ScheduleKind::k1F1B, 32, 0), 2) << "it does not grow with the micro-batches";
  EXPECT_EQ(most(ScheduleKind::k1F1B, 8, 1), most(ScheduleKind::k1F1B, 32, 1));
}

TEST(CommunicationOrder, AWorkerHasThePlacesOfItsOwnOperations) {
  const Plan plan = make_plan(ScheduleKind::k1F1B, {2, 3, 1}, 1, 4);
  // 2 to 3 rows: 4 overlaps; 3 to 1: 3; both ways. Worker 4 has the middle rows, and no end.
  std::set<TransferId> all;
  for (WorkerId worker : workers_of_plan(plan)) {
    const CommunicationPlaces places = places_of(plan, worker);
    std::set<uint64_t> numbers;
    for (const auto& [group, place] : places.groups) numbers.insert(place);
    for (const auto& [id, place] : places.transfers) {
      numbers.insert(place);
      all.insert(id);
    }
    EXPECT_EQ(numbers.size(), places.groups.size() + places.transfers.size());
    EXPECT_EQ(*numbers.rbegin() + 1, numbers.size());
  }
  EXPECT_EQ(all.size(), (4u + 3u) * 2 * 4);
  EXPECT_EQ(places_of(plan, {4}).transfers.size(), (2u + 1u) * 2 * 4);
  EXPECT_EQ(places_of(plan, {4}).groups.size(), 1u);
}

TEST(CommunicationOrder, EarlyBackwardsAlternateAndTheLastStageAddsUpFirst) {
  const Plan plan = make_plan(ScheduleKind::k1F1B, {2, 2}, 1, 3);
  const CommunicationPlaces front_places = places_of(plan, {1}), places = places_of(plan, {3});
  const ReplicaId front{0}, back{2};
  // Stage 0: F0 F1 B0 F2 B1 B2; stage 1: F0 B0 F1 B1 F2 B2.
  const std::vector<TransferId> order = {{front, back, 0}, {front, back, 1}, {back, front, 0},
                                         {front, back, 2}, {back, front, 1}, {back, front, 2}};
  for (const CommunicationPlaces& each : {front_places, places}) {
    std::vector<uint64_t> got;
    for (const TransferId& id : order) got.push_back(each.transfers.at(id));
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  }
  EXPECT_LT(places.transfers.at(order.back()), places.groups.at({1}));
  EXPECT_LT(places.groups.at({1}), places.groups.at({2})) << "the tied one waits for both stages";
  const std::vector<StageEnds> ends = action_ends(plan, {});
  EXPECT_LT(ends[1].last, ends[0].last);
}

}  // namespace
}  // namespace skein::plans
