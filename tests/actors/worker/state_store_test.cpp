#include "actors/worker/state_store.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace skein::actors
