#include "actors/worker/state_store.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

HeldState snapshot_of(uint64_t step, plans::LayerRange layers) {
  HeldState state;
  state.step = step;
  state.layers = layers;
  return state;
}

TEST(StateStore, KeepsOneSnapshotOfAStateHoweverManyPlansBeginWithIt) {
  StateStore store;
  for (int plan = 0; plan < 10; ++plan) store.keep(snapshot_of(4, {0, 2}), 1);
  EXPECT_EQ(store.inventory().size(), 1u);
  store.keep(snapshot_of(4, {2, 4}), 1);
  store.keep(snapshot_of(5, {0, 2}), 1);
  store.keep(snapshot_of(4, {0, 2}), 2);  // It belongs to another past.
  EXPECT_EQ(store.inventory().size(), 4u);
}

PreparedReplica small_replica(gpu::Device& device) {
  PreparedReplica replica;
  replica.options.model = small_job(1, 1).model;
  replica.options.layers = {0, 1};
  replica.options.rows = 1;
  replica.options.seq_len = 4;
  replica.model = gpu::StageModel::create(replica.options, device).value();
  return replica;
}

TEST(StateStore, KeepsOneModelOfAStateHoweverManyPlansAreNotStarted) {
  const std::shared_ptr<gpu::Device> device = gpu::make_host_device(1);
  StateStore store;
  ReplicasRetired retired;
  retired.steps_done = 6;
  const auto build_model = [&] { retired.replicas = {small_replica(*device)}; };
  for (int plan = 0; plan < 10; ++plan) {
    // A plan that is prepared anew builds one where it cannot take over the one before.
    build_model();
    store.keep_models(retired, 1);
  }
  EXPECT_EQ(store.inventory().size(), 1u);
  build_model();
  store.keep_models(retired, 2);  // The state is of another past.
  EXPECT_EQ(store.inventory().size(), 2u);
}

TEST(StateStore, CopiesOfModelsThatWereLetGoDoNotAddUp) {
  const std::shared_ptr<gpu::Device> device = gpu::make_host_device(1);
  StateStore store;
  ReplicasRetired retired;
  retired.steps_done = 6;
  for (int plan = 0; plan < 10; ++plan) {  // None starts.
    retired.replicas = {small_replica(*device)};
    store.keep_models(retired, 1);
    HeldState copy = snapshot_of(6, {0, 1});
    copy.generation = 1;
    store.replace_models({copy});
    ASSERT_EQ(store.held().size(), 1u);
    EXPECT_EQ(store.held()[0].model, nullptr);
  }
  store.begin_plan(6);
  EXPECT_TRUE(store.held().empty());
}

TEST(StateStore, KeepsWhatCameForAPlanThatNeverStartedUntilOneStarts) {
  StateStore store;
  store.keep(snapshot_of(4, {0, 2}), 1);
  for (int plan = 0; plan < 10; ++plan) {
    store.keep_fetched({snapshot_of(4, {1, 2}), snapshot_of(4, {2, 3})}, 1);
  }
  ASSERT_EQ(store.inventory().size(), 2u) << "the first is in the snapshot";
  EXPECT_EQ(store.inventory().back().layers, (plans::LayerRange{2, 3}));
  store.begin_plan(4);
  ASSERT_EQ(store.inventory().size(), 1u);
  EXPECT_EQ(store.inventory().back().layers, (plans::LayerRange{0, 2}));
}

}  // namespace
}  // namespace skein::actors
