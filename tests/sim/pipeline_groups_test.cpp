#include "tests/sim/pipeline_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "actors/averaging/model_floats.hpp"

namespace skein::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGeneration = 1;

/// A stage with two replicas, each in a process of its own: those with numbers 1 and 2.
struct TwoReplicas {
  explicit TwoReplicas(bool reduces_by_adasum = false)
      : groups(
            reduces_by_adasum, [this](const std::string& what) { violations.push_back(what); },
            [](ProcessId, plans::ReplicaId, uint64_t) {}) {
    gpu::StageModelOptions options;
    options.model.layers = 1;
    options.model.heads = 1;
    options.model.channels = 4;
    options.model.vocab_size = 8;
    options.model.positions = 4;
    options.layers = {1, 2};
    options.rows = 1;
    options.seq_len = 4;
    for (uint32_t replica = 0; replica < 2; ++replica) {
      models[replica] = gpu::StageModel::create(options, *device).value();
      set(replica, replica == 0 ? 1 : 3);
      groups.on_prepared(process(replica), kGeneration, {replica}, 0, models[replica]);
    }
  }

  /// All have the same then.
  void begin_round(uint32_t replica, float value) {
    set(replica, value);
    groups.on_prepared(process(replica), kGeneration, {replica}, 0, models[replica]);
  }
  static ProcessId process(uint32_t replica) { return replica + 1; }
  void set(uint32_t replica, float value) {
    std::vector<float> values(actors::float_count(*models[replica], actors::ModelFloats::kWeights),
                              value);
    const absl::Status status =
        actors::write_floats(*models[replica], actors::ModelFloats::kWeights, values);
    EXPECT_TRUE(status.ok()) << status;
  }
  void send(ProcessId from, const net::ControlBody& body) {
    const net::ControlMessage message = net::encode({.generation = kGeneration, .term = 1}, body);
    groups.on_control(from, *message, /*arrives=*/false);
  }
  /// Both are to average, half and half.
  void begin(bool is_nonblocking = false, bool is_global = false) {
    net::Average average;
    average.is_global = is_global;
    average.number = group;
    average.members = {{{0}, 0, 0.5}, {{1}, 0, 0.5}};
    for (uint32_t replica = 0; replica < 2; ++replica) {
      average.replica = {replica};
      average.is_nonblocking = is_nonblocking && replica == 0;
      send(0, average);
    }
  }
  void begin_next() {
    ++group;
    begin();
  }
  void copy(uint32_t replica) { groups.on_copied(process(replica), group); }
  void abort(uint32_t replica) { send(0, net::AbortGroup{{replica}, group}); }
  void end(uint32_t replica, bool ok) {
    send(process(replica), net::Averaged{{replica}, group, ok});
  }
  /// Its velocity stays 0.
  void update(uint32_t replica, float value, std::optional<double> lr = std::nullopt) {
    groups.on_update_begun(process(replica));
    set(replica, value);
    groups.on_update(process(replica), lr);
  }

  std::shared_ptr<gpu::Device> device = gpu::make_host_device(1);
  std::array<std::shared_ptr<gpu::StageModel>, 2> models;
  uint64_t group = 7;
  std::vector<std::string> violations;
  PipelineGroups groups;
};

TEST(PipelineGroups, AMemberThatHasAveragedHasTheSumOfAllContributions) {
  TwoReplicas stage;
  stage.begin();
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  for (uint32_t replica : {0u, 1u}) {
    stage.set(replica, 2);
    stage.end(replica, true);
  }
  EXPECT_THAT(stage.violations, IsEmpty());
}

/// Replica 1 does not hear of the abort, as its process is paused or cut off, and averages the
/// contribution of replica 0, which has gone on meanwhile: what it has by then is not in the
/// average. The check took it for that, so some seeds failed where nothing was wrong.
TEST(PipelineGroups, AnAverageMayHaveTheContributionOfAMemberThatHasGoneOnSince) {
  TwoReplicas stage;
  stage.begin();
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  stage.abort(0);
  stage.end(0, false);
  stage.update(0, 5);
  stage.set(1, 2);
  stage.end(1, true);
  EXPECT_THAT(stage.violations, IsEmpty());
}

TEST(PipelineGroups, AnAverageWithWhatAMemberHadLaterIsWrong) {
  TwoReplicas stage;
  stage.begin();
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  stage.abort(0);
  stage.end(0, false);
  stage.update(0, 5);
  stage.set(1, 4);
  stage.end(1, true);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("has 4 instead of 2 after group 7")));
}

/// What two have learnt is the same in one tensor: it counts once.
TEST(PipelineGroups, AtTheEndOfARoundAdasumMayBeWhatCounts) {
  for (const float value : {2.0f, 3.0f}) {
    TwoReplicas stage(/*reduces_by_adasum=*/true);
    for (uint32_t replica : {0u, 1u}) stage.begin_round(replica, 1);
    for (uint32_t replica : {0u, 1u}) stage.update(replica, 2);
    stage.begin(/*is_nonblocking=*/false, /*is_global=*/true);
    for (uint32_t replica : {0u, 1u}) stage.copy(replica);
    stage.set(0, value);
    stage.end(0, true);
    const bool is_right = value == 2;
    EXPECT_EQ(stage.violations.empty(), is_right) << value;
  }
}

TEST(PipelineGroups, AResultNeedsTheContributionsOfAll) {
  TwoReplicas stage;
  stage.begin();
  stage.copy(1);
  stage.set(1, 2);
  stage.end(1, true);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("before replica 0 has copied")));
}

TEST(PipelineGroups, AGroupFailsOnlyIfItIsAborted) {
  TwoReplicas stage;
  stage.begin();
  stage.end(0, false);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("nobody has aborted it")));
}

TEST(PipelineGroups, AnAbortedGroupChangesNothing) {
  TwoReplicas stage;
  stage.begin();
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  stage.abort(0);
  stage.set(0, 2);
  stage.end(0, false);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("has other values at group 7")));
}

TEST(PipelineGroups, AContributionIsWhatTheLastUpdateHasLeft) {
  TwoReplicas stage;
  stage.update(0, 5);
  stage.begin();
  stage.copy(0);
  EXPECT_THAT(stage.violations, IsEmpty());
  stage.set(1, 4);
  stage.copy(1);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("replica 1 has other values")));
}

TEST(PipelineGroups, AnUpdateAddsWhatItsGradientAndGroupsSay) {
  for (float value : {2.0F, 4.0F}) {  // The average is 2, and the member had 1.
    TwoReplicas stage;
    stage.begin(true);
    for (uint32_t replica : {0u, 1u}) stage.copy(replica);
    stage.end(0, true);
    stage.update(0, value, 0.1);
    EXPECT_EQ(stage.violations.size(), value == 2 ? 0u : 1u) << value;
  }
}

/// It was paused, was given up meanwhile, and what it then says of its group nobody hears.
TEST(PipelineGroups, WhatGroupsAddToAMemberThatWasGivenUpIsNotKnown) {
  for (bool is_lost : {true, false}) {
    TwoReplicas stage;
    stage.begin(true);
    for (uint32_t replica : {0u, 1u}) stage.copy(replica);
    if (is_lost) stage.groups.on_lost(TwoReplicas::process(0));
    stage.update(0, 2, 0.1);
    EXPECT_EQ(stage.violations.empty(), is_lost);
  }
}

/// The global average would be right for weights without it only.
TEST(PipelineGroups, WhatAGroupAddsIsMissedUntilAnUpdateHasIt) {
  TwoReplicas stage;
  stage.begin(true);
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  stage.end(0, true);
  stage.set(1, 2);
  stage.end(1, true);
  stage.update(0, 1, 0.1);  // As if it was on its way before the group ended.
  EXPECT_THAT(stage.violations, IsEmpty());
  stage.begin_next();
  for (uint32_t replica : {0u, 1u}) stage.copy(replica);
  stage.set(0, 1.5);
  stage.end(0, true);
  EXPECT_THAT(stage.violations, ElementsAre(HasSubstr("has 1.5 instead of 2")));
}

}  // namespace
}  // namespace skein::sim
