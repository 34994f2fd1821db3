#include "plans/tokens/token_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/tokens/token_order.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using State = TokenPool::State;

constexpr WorkerId kOne{1}, kTwo{2};

/// Two tokens of the second level, each of two of the first one.
TokenPool two_levels() { return TokenPool({8, {2, 4}}); }

/// The forward of the token; what is ready then.
TokenPool::Tokens forward(TokenPool& pool, WorkerId worker, TokenId id) {
  pool.claim(id, worker);
  return pool.on_output(worker, id).decisions();
}

TEST(TokenPool, ADeeperTokenIsMadeOfTheOutputsThatHaveItsSamples) {
  TokenPool pool = two_levels();
  EXPECT_THAT(pool.ready(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(pool.ready(1), IsEmpty());
  EXPECT_THAT(pool.inputs_of({1, 1}), ElementsAre(TokenId{0, 2}, TokenId{0, 3}));
  EXPECT_THAT(forward(pool, kOne, {0, 2}), IsEmpty());
  EXPECT_THAT(forward(pool, kTwo, {0, 3}), ElementsAre(TokenId{1, 1}));
  EXPECT_THAT(forward(pool, kTwo, {1, 1}), IsEmpty());
  EXPECT_EQ(pool.at({1, 1}).state, State::kDue) << "the loss is there";
  EXPECT_THAT(pool.on_done(kTwo, {1, 1}).decisions(), ElementsAre(TokenId{0, 2}, TokenId{0, 3}));
  EXPECT_EQ(pool.samples_done(1, kTwo), 4);
  EXPECT_EQ(pool.samples_done(1, kOne), 0);
  pool.check_invariants();
}

TEST(TokenPool, WhoDoesNotHoldATokenSaysNothingAboutIt) {
  TokenPool pool = two_levels();
  pool.claim({0, 0}, kOne);
  EXPECT_EQ(pool.on_output(kTwo, {0, 0}).why_dropped(), DropReason::kNotAllowed);
  EXPECT_EQ(pool.on_output(kOne, {0, 1}).why_dropped(), DropReason::kNotAllowed);
  EXPECT_EQ(pool.on_output(kOne, {2, 0}).why_dropped(), DropReason::kUnknown);
  EXPECT_EQ(pool.on_output(kOne, {0, 9}).why_dropped(), DropReason::kUnknown);
  EXPECT_TRUE(pool.on_output(kOne, {0, 0}).is_accepted());
  EXPECT_EQ(pool.on_output(kOne, {0, 0}).why_dropped(), DropReason::kRepeated);
  EXPECT_EQ(pool.on_done(kOne, {0, 0}).why_dropped(), DropReason::kEarly);
}

TEST(TokenPool, TheLastTokensOfALevelMayBeShort) {
  TokenPool pool({10, {4, 8}});
  EXPECT_EQ(pool.shape().count(0), 3);
  EXPECT_EQ(pool.samples_of({0, 2}), (SampleClaim{8, 2}));
  EXPECT_EQ(pool.samples_of({1, 1}), (SampleClaim{8, 2}));
  EXPECT_THAT(pool.inputs_of({1, 1}), ElementsAre(TokenId{0, 2}));
}

/// Workers come, pull, work and die at random; a loss ends the pool. What they would have trained
/// is followed beside the pool: each sample's path through the levels, and in whose sum its
/// gradient is.
class RandomSteps {
 public:
  RandomSteps(uint64_t seed, TokenShape shape) : rng_(seed), shape_(std::move(shape)) { begin(); }

  void event() {
    const uint64_t what = rng_.below(100);
    if (what == 0 && workers_.size() < 6) {
      join();
    } else if (what == 1 && workers_.size() > 1) {
      lose();
    } else {
      work();
    }
    pool_->check_invariants();
    if (is_over()) end();
  }
  uint64_t steps = 0, lost = 0;

 private:
  void begin() {
    pool_.emplace(shape_);
    at_.clear();
    gradients_.clear();
    while (workers_.size() < 2) join();
    level_workers_.assign(shape_.levels(), {});
    for (std::vector<WorkerId>& level : level_workers_) {
      for (WorkerId worker : workers_) {
        if (&level == &level_workers_.front() || rng_.below(2) == 0) level.push_back(worker);
      }
      if (level.empty()) level.push_back(workers_.front());
    }
    buckets_.emplace(shape_, level_workers_, std::vector<double>(level_workers_.front().size(), 1));
    policy_ = {rng_.below(2) == 0, rng_.below(2) == 0};
  }
  void join() { workers_.push_back({++last_}); }

  /// The step is done again, by those who are left.
  void lose() {
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(rng_.below(workers_.size())));
    ++lost;
    begin();
  }
  bool is_over() const {
    for (uint32_t level = 0; level < shape_.levels(); ++level) {
      if (!pool_->is_done(level)) return false;
    }
    return true;
  }

  void work() {
    const WorkerId worker = workers_[rng_.below(workers_.size())];
    std::vector<TokenId> mine;
    for (const auto& [id, who] : at_) {
      const State state = pool_->at(id).state;
      if (who == worker && (state == State::kClaimed || state == State::kDue)) mine.push_back(id);
    }
    if (mine.empty() || rng_.below(3) == 0) return claim(worker);
    const TokenId id = mine[rng_.below(mine.size())];
    if (pool_->at(id).state == State::kClaimed) {
      EXPECT_TRUE(pool_->on_output(worker, id).is_accepted());
      return;
    }
    EXPECT_TRUE(pool_->on_done(worker, id).is_accepted());
    const SampleClaim samples = pool_->samples_of(id);
    for (uint64_t sample = samples.first; sample < samples.first + samples.count; ++sample) {
      EXPECT_TRUE(gradients_[sample].emplace(id.level, worker).second) << "twice in a sum";
      if (id.level + 1 < shape_.levels()) {
        EXPECT_TRUE(gradients_[sample].contains(id.level + 1)) << "before the deeper level";
      }
    }
  }
  void claim(WorkerId worker) {
    const auto id = choose_token(*pool_, policy_, *buckets_, {worker});
    if (!id) return;
    pool_->claim(*id, worker);
    EXPECT_TRUE(at_.emplace(*id, worker).second) << "claimed twice";
  }
  void end() {
    for (uint64_t sample = 0; sample < shape_.samples; ++sample) {
      EXPECT_EQ(gradients_[sample].size(), shape_.levels()) << sample;
    }
    uint64_t all = 0;
    for (WorkerId worker : workers_) all += pool_->samples_done(0, worker);
    EXPECT_EQ(all, shape_.samples);
    ++steps;
    begin();
  }

  Rng rng_;
  TokenShape shape_;
  std::optional<TokenPool> pool_;
  LevelWorkers level_workers_;
  std::optional<TokenBuckets> buckets_;
  TokenPolicy policy_;
  std::vector<WorkerId> workers_;
  uint32_t last_ = 0;
  std::map<TokenId, WorkerId> at_;                              // Claims of the step.
  std::map<uint64_t, std::map<uint32_t, WorkerId>> gradients_;  // By sample and level.
};

TEST(TokenPool, EachSamplePassesEachLevelOnceWhoeverComesAndDies) {
  const std::vector<TokenShape> shapes = {
      {8, {2}}, {16, {2, 4}}, {24, {1, 3, 12}}, {10, {2, 4, 8}}};
  uint64_t steps = 0, lost = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomSteps run(seed, shapes[seed % shapes.size()]);
    for (int event = 0; event < 5000; ++event) run.event();
    steps += run.steps;
    lost += run.lost;
  }
  EXPECT_GT(steps, 300u);
  EXPECT_GT(lost, 50u);
}

}  // namespace
}  // namespace skein::plans
