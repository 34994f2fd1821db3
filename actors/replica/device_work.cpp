#include "actors/replica/device_work.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

/// What profilers show a piece of work as.
std::string name_of(const plans::ProgramCommand& command) {
  if (const auto* run = std::get_if<plans::RunAction>(&command)) {
    const std::string action = plans::to_text(run->action);
    return run->is_whole() ? action : absl::StrCat(action, " part ", run->part);
  }
  if (std::holds_alternative<plans::RunNorm>(command)) return "norm";
  if (std::holds_alternative<plans::RunShare>(command)) return "share";
  if (std::holds_alternative<plans::RunBegin>(command)) return "begin";
  return std::holds_alternative<plans::RunUpdate>(command) ? "update" : "validation";
}

}  // namespace

DeviceWork::DeviceWork(Options options) : options_(std::move(options)) {}

void DeviceWork::submit(const plans::ProgramCommand& command, gpu::Work work, Outgoing output) {
  running_.push_back({command, options_.now_us()});
  const int32_t index = index_of(command);
  work.piece = piece_of(command, index);
  work.need = need_of(command, index);
  work.name = name_of(command);
  work.device_count = static_cast<int32_t>(options_.plan.worker_max);  // They take turns.
  work.run = [is_broken = is_broken_, run = std::move(work.run)](gpu::Ops& ops) -> absl::Status {
    if (*is_broken) return absl::CancelledError("what comes before it has failed");
    absl::Status status = run(ops);
    *is_broken = !status.ok();
    return status;
  };
  options_.submit(kProgram, std::move(work), std::move(output));
}

void DeviceWork::submit_aside(uint64_t token, gpu::Work work) {
  work.need = {plans::PieceNeed::kAside};
  options_.submit(token, std::move(work), {});
}

DeviceWork::Done DeviceWork::end(uint64_t end_us, std::optional<uint64_t> begun_us) {
  SKEIN_CHECK(!running_.empty()) << "the device has done what nobody gave it";
  const Running ended = running_.front();
  running_.pop_front();
  const uint64_t could_us = std::max(ended.submitted_us, device_free_us_);
  const uint64_t start_us = std::max(could_us, begun_us.value_or(could_us));
  device_free_us_ = end_us;
  return {ended.command, start_us, end_us, start_us - could_us};
}

uint64_t DeviceWork::end_aside(uint64_t end_us, std::optional<uint64_t> begun_us) {
  const uint64_t free_us = std::exchange(device_free_us_, end_us);
  return end_us - std::max(free_us, begun_us.value_or(free_us));
}

/// In the list of actions, which are those of one pass, or among those of its step so far; -1: what
/// is no action.
int32_t DeviceWork::index_of(const plans::ProgramCommand& command) {
  const auto* run = std::get_if<plans::RunAction>(&command);
  if (std::holds_alternative<plans::RunBegin>(command)) return numbered_ = 0;
  if (run == nullptr) return -1;
  if (!options_.follows_list) return ++numbered_;
  const plans::ActionList& actions = options_.plan.actions;
  return static_cast<int32_t>(std::find(actions.begin(), actions.end(), run->action) -
                              actions.begin());
}

plans::DevicePieceNeed DeviceWork::need_of(const plans::ProgramCommand& command,
                                           int32_t index) const {
  if (const auto* run = std::get_if<plans::RunAction>(&command)) {
    // Without a list no step is like the one before, so nothing is to be foreseen.
    if (!options_.follows_list) return {plans::PieceNeed::kTurn};
    const bool is_last = run->action == options_.plan.actions.back() && run->is_last_part();
    return {plans::PieceNeed::kTurn, is_last, index};
  }
  const bool is_long = std::holds_alternative<plans::RunValidation>(command);
  return {is_long ? plans::PieceNeed::kShare : plans::PieceNeed::kAside};
}

/// What a device's scenario goes by. Only the first part of an action of a step sleeps.
plans::WorkPiece DeviceWork::piece_of(const plans::ProgramCommand& command, int32_t index) const {
  plans::WorkPiece piece;
  piece.device = static_cast<int32_t>(options_.worker.value) - 1;
  piece.index = -1;
  const auto* run = std::get_if<plans::RunAction>(&command);
  const auto* begin = std::get_if<plans::RunBegin>(&command);
  if (begin == nullptr && (run == nullptr || run->part > 0)) return piece;
  piece.step = static_cast<int32_t>(begin != nullptr ? begin->step : run->step);
  piece.index = index;
  return piece;
}

}  // namespace skein::actors
