#include "plans/share/device_turns.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// How much of what is usual is what was last.
constexpr double kNewest = 0.25;
constexpr double kNewestLonger = 0.05;
/// So much of a piece's time may go beyond when a more important one should come.
constexpr double kOverrunShare = 0.1;
/// After so much of a piece's time behind when that should have come, it is late.
constexpr double kLateShare = 0.25;
/// Of pieces further on in a pass nothing is known.
constexpr int32_t kIndexMax = 1 << 16;
/// Instead of an index: the pass has ended, and the next piece is the first one.
constexpr int32_t kPassEnded = 1 << 20;

}  // namespace

void DeviceTurns::add(const DeviceJob& job) {
  SKEIN_CHECK(job.weight >= 1 && job.weight <= kTurnWeightMax) << job.weight;
  JobState state;
  state.job = job;
  state.served = virtual_us_;
  const bool is_new = jobs_.emplace(job.number, std::move(state)).second;
  SKEIN_CHECK(is_new) << "job " << job.number << " is here already";
}

void DeviceTurns::remove(uint64_t number) {
  if (running_ && running_->number == number) running_.reset();
  jobs_.erase(number);
}

bool DeviceTurns::enter(uint64_t number, uint64_t position, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  state.is_in_pass = false;
  state.position.reset();
  const bool is_in_time = position > seen_ && position <= kTurnPositionMax;
  if (is_in_time) state.position = position;
  state.last_turn_us = 0;
  settle(now_us);
  return is_in_time;
}

void DeviceTurns::leave(uint64_t number, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  state.position.reset();
  state.is_in_pass = false;
  settle(now_us);
}

uint64_t DeviceTurns::head() const {
  uint64_t head = seen_;
  for (const auto& [number, state] : jobs_) head = std::max(head, state.position.value_or(0));
  return head;
}

void DeviceTurns::request(uint64_t number, const DevicePieceNeed& need, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  // Time in which it wanted nothing is not made up for.
  if (state.waiting.empty()) state.served = std::max(state.served, virtual_us_);
  note_request(state, need, now_us);
  state.waiting.push_back(need);
  settle(now_us);
}

std::optional<uint64_t> DeviceTurns::start(uint64_t now_us) {
  settle(now_us);
  drop_hung(now_us);
  if (running_) return std::nullopt;
  drop_idle_holders(now_us);
  std::set<int64_t, std::greater<>> priorities;
  for (const auto& [number, state] : jobs_) priorities.insert(state.job.priority);
  held_until_us_.reset();
  for (int64_t priority : priorities) {
    JobState* next = next_of(priority);
    if (next == nullptr) continue;
    if (const uint64_t until_us = held_until(*next, now_us); until_us > 0) {
      held_until_us_ = std::min(held_until_us_.value_or(until_us), until_us);
      continue;
    }
    const DevicePieceNeed piece = next->waiting.front();
    next->waiting.pop_front();
    if (piece.need == PieceNeed::kTurn && next->position && !next->is_in_pass) {
      next->is_in_pass = true;
      seen_ = std::max(seen_, *next->position);
    }
    virtual_us_ = std::max(virtual_us_, next->served);
    running_ = Running{next->job.number, piece, now_us};
    return next->job.number;
  }
  return std::nullopt;
}

void DeviceTurns::end(uint64_t number, uint64_t now_us) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;  // It was removed while the piece ran.
  JobState& state = found->second;
  if (state.hangs) {
    state.hangs = false;
    return;
  }
  SKEIN_CHECK(running_ && running_->number == number) << "nothing of job " << number << " runs";
  const Running ended = *std::exchange(running_, std::nullopt);
  const uint64_t taken_us = now_us - std::min(now_us, ended.since_us);
  state.longest_us = std::max(state.longest_us, taken_us);
  note_end(state, ended.piece, taken_us, now_us);
  state.served += static_cast<double>(taken_us) / static_cast<double>(state.job.weight);
  state.idle_since_us = now_us;
  if (ended.piece.need == PieceNeed::kTurn && ended.piece.ends_pass && state.is_in_pass) {
    state.is_in_pass = false;
    *state.position += kTurnUnit / static_cast<uint64_t>(state.job.weight);
    state.last_turn_us = now_us - std::min(now_us, state.turn_since_us);
    holders_.erase(state.job.priority);  // If it is its own successor, that is another turn.
  }
  settle(now_us);
}

std::optional<uint64_t> DeviceTurns::wake_us() const {
  if (running_) return hang_at();
  std::optional<uint64_t> first = held_until_us_;
  for (const auto& [priority, number] : holders_) {
    const JobState& state = jobs_.at(number);
    if (!state.waiting.empty() || state.hangs || !is_waited_for(state)) continue;
    const uint64_t at_us = state.idle_since_us + patience_of(state);
    if (!first || at_us < *first) first = at_us;
  }
  return first;
}

DeviceTurns::JobState* DeviceTurns::holder(int64_t priority) {
  JobState* first = nullptr;
  for (auto& [number, state] : jobs_) {
    if (state.job.priority != priority || !state.position) continue;
    if (first == nullptr || *state.position < *first->position) first = &state;
  }
  return first;
}

void DeviceTurns::settle(uint64_t now_us) {
  std::map<int64_t, uint64_t> held;
  for (const auto& [number, state] : jobs_) {
    if (held.contains(state.job.priority)) continue;
    JobState* has_turn = holder(state.job.priority);
    if (has_turn == nullptr) continue;
    held[state.job.priority] = has_turn->job.number;
    const auto before = holders_.find(state.job.priority);
    if (before != holders_.end() && before->second == has_turn->job.number) continue;
    has_turn->turn_since_us = now_us;
    has_turn->idle_since_us = now_us;
  }
  holders_ = std::move(held);
}

void DeviceTurns::drop_hung(uint64_t now_us) {
  const std::optional<uint64_t> at_us = hang_at();
  if (!at_us || now_us < *at_us) return;
  JobState& state = jobs_.at(running_->number);
  state.hangs = true;
  ++hung_pieces_;
  running_.reset();
  leave(state.job.number, now_us);
}

std::optional<uint64_t> DeviceTurns::hang_at() const {
  if (!running_ || jobs_.size() < 2) return std::nullopt;
  const JobState& state = jobs_.at(running_->number);
  return running_->since_us + std::max(options_.hang_us, kHangFactor * state.longest_us);
}

void DeviceTurns::drop_idle_holders(uint64_t now_us) {
  // Whoever comes after one that is dropped has just got the turn.
  const std::map<int64_t, uint64_t> held = holders_;
  for (const auto& [priority, number] : held) {
    const JobState& state = jobs_.at(number);
    if (!state.waiting.empty() && !state.hangs) continue;
    if (!is_waited_for(state) || now_us < state.idle_since_us + patience_of(state)) continue;
    ++lost_turns_;
    leave(number, now_us);
  }
}

bool DeviceTurns::is_waited_for(const JobState& holder) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& each) {
    const JobState& other = each.second;
    return &other != &holder && other.job.priority == holder.job.priority && other.position &&
           !other.waiting.empty();
  });
}

uint64_t DeviceTurns::patience_of(const JobState& holder) const {
  return std::max(options_.patience_us, 2 * holder.last_turn_us);
}

void DeviceTurns::note_request(JobState& job, const DevicePieceNeed& piece, uint64_t now_us) {
  if (piece.need != PieceNeed::kTurn || piece.index < 0 || piece.index > kIndexMax) return;
  const auto index = static_cast<size_t>(piece.index);
  if (job.usual.size() <= index) job.usual.resize(index + 1);
  if (job.last_index < 0) return;
  // It may be asked for while the one before it runs.
  const bool is_next = piece.index == job.last_index + 1 || job.last_index == kPassEnded;
  Usual& usual = job.usual[index];
  const auto gap_us =
      is_next ? static_cast<double>(now_us - std::min(now_us, job.last_end_us)) : 0.0;
  if (!usual.has_gap) {
    usual.gap_us = gap_us;
  } else {
    usual.gap_off_us += kNewest * (std::abs(gap_us - usual.gap_us) - usual.gap_off_us);
    // A gap that others have made longer is none that they may fill.
    usual.gap_us += (gap_us < usual.gap_us ? kNewest : kNewestLonger) * (gap_us - usual.gap_us);
  }
  usual.has_gap = true;
}

void DeviceTurns::note_end(JobState& job, const DevicePieceNeed& piece, uint64_t taken_us,
                           uint64_t now_us) {
  if (piece.need != PieceNeed::kTurn) return;
  job.last_index = piece.ends_pass ? kPassEnded : piece.index;
  job.last_end_us = now_us;
  if (piece.index < 0 || static_cast<size_t>(piece.index) >= job.usual.size()) return;
  Usual& usual = job.usual[static_cast<size_t>(piece.index)];
  const auto taken = static_cast<double>(taken_us);
  usual.taken_us = usual.has_taken ? usual.taken_us + kNewest * (taken - usual.taken_us) : taken;
  usual.has_taken = true;
}

uint64_t DeviceTurns::held_until(const JobState& job, uint64_t now_us) const {
  const DevicePieceNeed& piece = job.waiting.front();
  if (piece.need != PieceNeed::kTurn || piece.index < 0) return 0;
  const Usual& own = job.usual[static_cast<size_t>(std::min(piece.index, kIndexMax))];
  if (!own.has_taken) return 0;
  uint64_t until_us = 0;
  for (const auto& [number, other] : jobs_) {
    if (other.job.priority <= job.job.priority || !other.waiting.empty()) continue;
    if (other.last_index < 0 || other.usual.empty()) continue;
    const bool is_between = other.last_index == kPassEnded;
    const size_t next = is_between ? 0 : static_cast<size_t>(other.last_index) + 1;
    if (next >= other.usual.size() || !other.usual[next].has_gap) continue;
    const Usual& usual = other.usual[next];
    const double at_us = static_cast<double>(other.last_end_us) + usual.gap_us;
    const double early_us = at_us - usual.gap_off_us;
    const double late_us = at_us + usual.gap_off_us + kLateShare * own.taken_us;
    const auto now = static_cast<double>(now_us);
    if (now + own.taken_us <= early_us + kOverrunShare * usual.taken_us || now >= late_us) continue;
    until_us = std::max(until_us, static_cast<uint64_t>(std::ceil(late_us)));
  }
  return until_us;
}

/// What goes first is what others wait for; then whoever has had the smallest part of the time.
DeviceTurns::JobState* DeviceTurns::next_of(int64_t priority) {
  const JobState* has_turn = holder(priority);
  JobState* next = nullptr;
  for (auto& [number, state] : jobs_) {
    if (state.job.priority != priority || !may_run(state, has_turn)) continue;
    const bool is_aside = state.waiting.front().need == PieceNeed::kAside;
    const bool next_is_aside = next != nullptr && next->waiting.front().need == PieceNeed::kAside;
    const bool goes_first = next == nullptr || (is_aside && !next_is_aside) ||
                            (is_aside == next_is_aside && state.served < next->served);
    if (goes_first) next = &state;
  }
  return next;
}

bool DeviceTurns::may_run(const JobState& job, const JobState* holder) const {
  if (job.waiting.empty() || job.hangs) return false;
  const bool needs_turn = job.waiting.front().need == PieceNeed::kTurn && job.position;
  return !needs_turn || &job == holder;
}

void DeviceTurns::check_invariants() const {
  if (running_) {
    const auto found = jobs_.find(running_->number);
    SKEIN_CHECK(found != jobs_.end() && !found->second.hangs) << "what runs is somebody's";
  }
  std::map<int64_t, uint64_t> in_pass;
  for (const auto& [number, state] : jobs_) {
    if (!state.is_in_pass) continue;
    SKEIN_CHECK(state.position && *state.position <= seen_) << "job " << number << " has begun";
    SKEIN_CHECK(in_pass.emplace(state.job.priority, number).second) << "two passes at once";
    const auto held = holders_.find(state.job.priority);
    SKEIN_CHECK(held != holders_.end() && held->second == number) << "who runs has the turn";
  }
}

}  // namespace skein::plans
