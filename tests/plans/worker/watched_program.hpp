#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <utility>

#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// A program whose invariants are checked after every event, and whose drops are counted.
template <class Program>
class Watched {
 public:
  explicit Watched(ProgramOptions options)
      : program_(std::make_unique<Program>(std::move(options))) {}
  explicit Watched(std::unique_ptr<Program> program) : program_(std::move(program)) {}
  Watched(const Watched& other) requires std::copy_constructible<Program>
      : program_(std::make_unique<Program>(*other.program_)), drops_(other.drops_) {}
  Watched(Watched&&) = default;

  ProgramCommands on_start(const CommitOrder& left = {}) { return take(program_->on_start(left)); }
  ProgramCommands on_input(const InputKey& key) { return take(program_->on_input(key)); }
  ProgramCommands on_work_done() { return take(program_->on_work_done()); }
  ProgramCommands on_group_reduced(GroupId group, uint64_t step, int32_t bucket) {
    return take(program_->on_group_reduced(group, step, bucket));
  }
  ProgramCommands on_commit(const CommitOrder& commit) { return take(program_->on_commit(commit)); }
  ProgramCommands on_claim(const ClaimOrder& claim) { return take(program_->on_claim(claim)); }
  ProgramCommands on_update(const UpdateOrder& update) { return take(program_->on_update(update)); }
  ProgramCommands on_average(const AverageOrder& order) {
    return take(program_->on_average(order));
  }
  ProgramCommands on_averaged(int32_t stage, uint64_t number, bool ok) {
    return take(program_->on_averaged(stage, number, ok));
  }

  const Program* operator->() const { return program_.get(); }
  uint64_t dropped() const { return drops_.total(); }
  uint64_t dropped(DropReason why) const { return drops_.of(why); }

 private:
  ProgramCommands take(ProgramOutcome outcome) {
    drops_.note(outcome);
    program_->check_invariants();
    return std::move(outcome).decisions();
  }

  std::unique_ptr<Program> program_;
  DropCounts drops_;
};

}  // namespace skein::plans
