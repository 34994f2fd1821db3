#include "actors/worker/emergency_save.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "actors/run_id.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "gpu/files/durable_file.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

namespace fs = std::filesystem;

/// A run folder, and a worker that holds copies of states, whose numbers are those of their steps.
struct HolderRig {
  HolderRig() {
    std::ofstream(folder.file(kRunIdName)) << "small-1\n";
    request.run_folder = folder.path();
    request.run = "small-1";
    request.worker = {3};
    request.job = small_job(1, 1);
  }

  void hold(uint64_t step, plans::LayerRange layers) {
    HeldState held;
    held.step = step;
    held.generation = 2;
    held.layers = layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      const auto copy = make_layer_memory(layer_state_floats(request.job.model, layer));
      std::fill(copy->begin(), copy->end(), static_cast<float>(step));
      seal_layer_state(layer, *copy);
      held.copies[layer] = copy;
    }
    request.held.push_back(std::move(held));
  }
  plans::LayerRange all() const { return {0, plans::layer_count(request.job.model)}; }
  std::string path(uint64_t step) const { return gpu::emergency_path(folder.path(), step, 2, 3); }
  /// Steps of the checkpoint that a coordinator would make of what is there; 0: of none.
  uint64_t adopt(const std::string& run = "small-1") const {
    const auto any = [](uint64_t, uint64_t) { return std::optional(1.0); };
    return gpu::adopt_emergency_shards(folder.path(), request.job, any, {run, 0})
        .value()
        .steps_done;
  }

  tests::TemporaryFolder folder;
  EmergencyRequest request;
};

TEST(EmergencySave, ACoordinatorGoesOnFromWhatWasWritten) {
  HolderRig rig;
  rig.hold(6, rig.all());
  rig.hold(7, rig.all());
  const EmergencySaved saved = save_in_emergency(rig.request);
  EXPECT_TRUE(saved.status.ok()) << saved.status;
  EXPECT_EQ(saved.folders, (std::vector<std::string>{rig.path(7), rig.path(6)}));
  EXPECT_EQ(rig.adopt(), 7u);
  EXPECT_TRUE(save_in_emergency(rig.request).folders.empty()) << "the checkpoint has it";
}

TEST(EmergencySave, AnotherRunDoesNotGoOnFromIt) {
  HolderRig rig;
  rig.hold(7, rig.all());
  ASSERT_TRUE(save_in_emergency(rig.request).status.ok());
  EXPECT_EQ(rig.adopt("other-2"), 0u);
  EXPECT_EQ(rig.adopt(), 7u);
}

TEST(EmergencySave, ACheckpointOfAnotherRunIsNoReasonNotToWrite) {
  HolderRig rig;
  rig.request.run = "other-2";
  std::ofstream(rig.folder.file(kRunIdName)) << "other-2\n";
  rig.hold(9, rig.all());
  ASSERT_TRUE(save_in_emergency(rig.request).status.ok());
  ASSERT_EQ(rig.adopt("other-2"), 9u);
  rig.request.run = "small-1";
  std::ofstream(rig.folder.file(kRunIdName)) << "small-1\n";
  rig.request.held.clear();
  rig.hold(7, rig.all());
  EXPECT_EQ(save_in_emergency(rig.request).folders.size(), 1u);
  EXPECT_EQ(rig.adopt(), 7u);
}

TEST(EmergencySave, ADamagedNewerCheckpointIsNoReasonNotToWrite) {
  HolderRig rig;
  rig.hold(9, rig.all());
  ASSERT_TRUE(save_in_emergency(rig.request).status.ok());
  ASSERT_EQ(rig.adopt(), 9u);
  for (const auto& entry : fs::directory_iterator(rig.folder.file("checkpoint/step-00000009"))) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 100);
  }
  rig.request.held.clear();
  rig.hold(7, rig.all());
  EXPECT_EQ(save_in_emergency(rig.request).folders.size(), 1u);
  EXPECT_EQ(rig.adopt(), 7u);
}

TEST(EmergencySave, ADamagedCopyIsLeftOut) {
  HolderRig rig;
  rig.hold(7, rig.all());
  rig.request.held[0].copies[1]->front() += 1;
  EXPECT_EQ(save_in_emergency(rig.request).folders.size(), 1u);
  EXPECT_EQ(rig.adopt(), 0u) << "a layer is missing";
  rig.hold(7, {1, 2});
  EXPECT_EQ(save_in_emergency(rig.request).folders.size(), 1u);
  EXPECT_EQ(rig.adopt(), 7u) << "there is another copy of it";
}

TEST(EmergencySave, WhatIsWrittenBeforeTheDiskIsFullStays) {
  HolderRig rig;
  rig.hold(6, rig.all());
  rig.hold(7, rig.all());
  for (int64_t n = 1; !fs::exists(rig.path(6)); n += 13) {
    fs::remove_all(rig.folder.file("checkpoint"));
    gpu::fail_file_operation(n);
    const EmergencySaved saved = save_in_emergency(rig.request);
    gpu::fail_file_operation(0);
    if (saved.status.ok()) break;
    EXPECT_FALSE(fs::exists(rig.path(6))) << "half a state takes space only";
    EXPECT_EQ(fs::exists(rig.path(7)), saved.folders.size() == 1) << n;
    EXPECT_EQ(saved.may_go_later, saved.folders.empty()) << n;
    if (saved.folders.size() == 1) {
      EXPECT_EQ(rig.adopt(), 7u);
    }
  }
  EXPECT_TRUE(fs::exists(rig.path(6)));
}

TEST(EmergencySave, WhatWasWrittenOfAStateStaysWhereTheRestCannotBeAdded) {
  for (int64_t n = 1;; n += 3) {
    HolderRig rig;
    const int64_t layers = rig.all().end;
    rig.hold(7, {1, layers});
    ASSERT_TRUE(save_in_emergency(rig.request).status.ok());
    const std::string held = rig.path(7) + "/" + gpu::kHeldName;
    fs::last_write_time(held, fs::last_write_time(held) - std::chrono::hours(1));
    rig.hold(7, {0, 1});
    gpu::fail_file_operation(n);
    const EmergencySaved saved = save_in_emergency(rig.request);
    gpu::fail_file_operation(0);
    EXPECT_EQ(saved.may_go_later, !saved.status.ok());
    EXPECT_FALSE(gpu::is_state_being_left(rig.folder.path(), "small-1")) << n;
    rig.request.worker = {4};  // It has the rest.
    std::swap(rig.request.held[0], rig.request.held[1]);
    rig.request.held.pop_back();
    ASSERT_TRUE(save_in_emergency(rig.request).status.ok());
    EXPECT_EQ(rig.adopt(), 7u) << n;
    if (saved.status.ok()) break;
  }
}

TEST(EmergencySave, OnlyTheRunsOwnFolderIsWrittenTo) {
  HolderRig rig;
  rig.hold(7, rig.all());
  rig.request.run = "other-2";
  EXPECT_TRUE(absl::IsUnavailable(save_in_emergency(rig.request).status));
  rig.request.run_folder = rig.folder.file("elsewhere");
  const EmergencySaved saved = save_in_emergency(rig.request);
  EXPECT_TRUE(absl::IsUnavailable(saved.status));
  EXPECT_FALSE(saved.may_go_later);
  EXPECT_FALSE(fs::exists(rig.folder.file("checkpoint")));
  EXPECT_FALSE(fs::exists(rig.folder.file("elsewhere")));
}

}  // namespace
}  // namespace skein::actors
