#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "net/codec/steps.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// How long the stages of a worker take, for the reports of every step, and what they do when, for
/// the timings of profiled ones. Owned by one actor; touched only from its handlers. All times but
/// those that it gives away are of the worker's clock.
class StepTrace {
 public:
  /// What a slice shows: tracks of the trace.
  enum Track : uint8_t { kCompute = 0, kSend = 1, kReceive = 2, kGradients = 3, kControl = 4 };

  void set_clock_offset(int64_t coordinator_minus_ours_us) {
    clock_offset_us_ = coordinator_minus_ours_us;
  }
  /// A step may begin before the one before has ended: what is recorded says which it is of.
  void set_overlaps(bool overlaps) { overlaps_ = overlaps; }
  void set_profiles(bool profiles) { profiles_ = profiles; }
  bool profiles() const { return profiles_; }
  void begin_step(uint64_t now_us) { step_start_us_ = now_us; }
  using Report = std::function<void(int32_t stage, uint64_t step, std::vector<net::Slice>)>;
  /// The step was committed, and the next one begins, of which there may be slices already.
  /// `report` gets those of each stage and step up to this one that were profiled.
  void end_step(uint64_t step, uint64_t now_us, bool profiles_next, const Report& report);

  /// A piece of the program's work has run. A validation pass is no part of a step's time.
  /// `wait_us`: before it, for a device that was with other jobs.
  void on_work(const plans::ProgramCommand& work, uint64_t start_us, uint64_t end_us,
               uint64_t wait_us = 0);
  void on_snapshot(uint64_t taken_us);
  /// Fills in what the stage has taken since its last ready signal, and begins to count anew.
  void on_ready(int32_t stage, uint64_t now_us, plans::ReadyReport& report);
  /// Nothing happens unless the step is profiled. `step` counts where steps overlap, and may be
  /// that of the last one that was profiled; none: the one in progress.
  void record(int32_t stage, const std::string& slice, Track track, uint64_t start_us,
              uint64_t end_us, int32_t microbatch = -1, std::optional<uint64_t> step = {});
  /// What the last ready signal of a stage has said.
  uint32_t weight_delay(int32_t stage) const { return stages_.at(stage).weight_delay; }

  /// The stages that are here.
  void add_stage(int32_t stage) { stages_[stage]; }

 private:
  /// What a stage has done since its last ready signal.
  struct StageTimes {
    uint64_t busy_us = 0;
    uint64_t wait_us = 0;         // The device was with other jobs.
    uint64_t parts_start_us = 0;  // When an action that is run in parts began.
    uint64_t ready_us = 0;
    uint32_t stashes = 0;
    uint32_t stash_peak = 0;   // >= stashes
    uint64_t snapshot_us = 0;  // What the last snapshot took.
    uint32_t weight_delay = 0;
  };

  void spread(uint64_t taken_us, uint64_t wait_us);
  StageTimes& count(int32_t stage, uint64_t taken_us, uint64_t wait_us);
  void count_stash(const plans::RunAction& run);

  std::map<int32_t, StageTimes> stages_;
  uint64_t step_start_us_ = 0;
  int64_t clock_offset_us_ = 0;
  bool profiles_ = false;
  bool overlaps_ = false;
  /// By stage, then by step; what is of no step but the one in progress is the last.
  std::map<int32_t, std::map<uint64_t, std::vector<net::Slice>>> slices_;
  std::optional<uint64_t> profiled_step_;  // The last one that has ended.
};

}  // namespace skein::actors
