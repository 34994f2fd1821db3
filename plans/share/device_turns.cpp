#include "plans/share/device_turns.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// So much of a piece's time may go beyond when a more important one should come.
constexpr double kOverrunShare = 0.1;
/// Behind when a more important one should have come, so much of a piece's time is waited for it.
constexpr double kLateShare = 0.25;
/// So much of the longest piece fades with each one that ends: one that was longer than usual, as
/// the process was stopped, is forgotten after some hundred.
constexpr uint64_t kFades = 256;
/// A turn counts for no more than so many times the one before it, or the usual patience: it may
/// have been long only as nobody waited.
constexpr uint64_t kTurnGrowthMax = 4;

}  // namespace

void DeviceTurns::add(const DeviceJob& job) {
  SKEIN_CHECK(job.weight >= 1 && job.weight <= kTurnWeightMax) << job.weight;
  JobState state;
  state.job = job;
  state.served = virtual_us_[job.priority];
  const bool is_new = jobs_.emplace(job.number, std::move(state)).second;
  SKEIN_CHECK(is_new) << "job " << job.number << " is here already";
}

void DeviceTurns::change(const DeviceJob& job, uint64_t now_us) {
  SKEIN_CHECK(job.weight >= 1 && job.weight <= kTurnWeightMax) << job.weight;
  leave(job.number, now_us);
  JobState& state = jobs_.at(job.number);
  state.job = job;
  state.served = virtual_us_[job.priority];
  settle(now_us);
}

void DeviceTurns::remove(uint64_t number) {
  if (running_ && running_->number == number) running_.reset();
  std::erase_if(holders_, [number](const auto& each) { return each.second == number; });
  jobs_.erase(number);
}

bool DeviceTurns::enter(uint64_t number, uint64_t position, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  state.is_in_pass = false;
  state.position.reset();
  const bool is_in_time = position > seen_[state.job.priority] && position <= kTurnPositionMax;
  if (is_in_time) state.position = position;
  settle(now_us);
  return is_in_time;
}

void DeviceTurns::leave(uint64_t number, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  state.position.reset();
  state.is_in_pass = false;
  settle(now_us);
}

void DeviceTurns::end_passes(uint64_t number, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  state.is_urgent = true;
  state.pass_since_us = 0;
  state.forecast.forget();
  leave(number, now_us);
}

void DeviceTurns::begin_passes(uint64_t number) { jobs_.at(number).is_urgent = false; }

uint64_t DeviceTurns::head(uint64_t number) const {
  const int64_t priority = jobs_.at(number).job.priority;
  const auto seen = seen_.find(priority);
  uint64_t head = seen == seen_.end() ? 1 : std::max<uint64_t>(1, seen->second);
  for (const auto& [other, state] : jobs_) {
    if (state.job.priority == priority) head = std::max(head, state.position.value_or(0));
  }
  return std::min(head, kTurnPositionMax);
}

bool DeviceTurns::is_waiting(uint64_t number) const {
  const JobState& state = jobs_.at(number);
  return !state.waiting.empty() && !state.hangs && !(running_ && running_->number == number);
}

void DeviceTurns::request(uint64_t number, const DevicePieceNeed& need, uint64_t now_us) {
  JobState& state = jobs_.at(number);
  // Time in which it wanted nothing is not made up for.
  if (state.waiting.empty()) {
    state.served = std::max(state.served, virtual_us_[state.job.priority]);
    state.waits_since_us = now_us;
  }
  if (need.need == PieceNeed::kTurn) state.forecast.on_request(need.index, now_us);
  state.waiting.push_back(need);
  settle(now_us);
}

std::optional<uint64_t> DeviceTurns::start(uint64_t now_us) {
  settle(now_us);
  drop_hung(now_us);
  if (running_) return std::nullopt;
  drop_idle_holders(now_us);
  held_until_us_.reset();
  JobState* next = find_urgent(now_us);
  std::set<int64_t, std::greater<>> priorities;
  for (const auto& [number, state] : jobs_) priorities.insert(state.job.priority);
  for (auto priority = priorities.begin(); !next && priority != priorities.end(); ++priority) {
    next = next_of(*priority, now_us);
  }
  if (next == nullptr) return std::nullopt;
  begin(*next, now_us);
  return next->job.number;
}

void DeviceTurns::begin(JobState& job, uint64_t now_us) {
  const DevicePieceNeed piece = job.waiting.front();
  job.waiting.pop_front();
  if (piece.need == PieceNeed::kTurn) {
    if (job.pass_since_us == 0) job.pass_since_us = now_us;
    if (job.position && !job.is_in_pass) {
      job.is_in_pass = true;
      uint64_t& seen = seen_[job.job.priority];
      seen = std::max(seen, *job.position);
    }
  }
  double& virtual_us = virtual_us_[job.job.priority];
  virtual_us = std::max(virtual_us, job.served);
  running_ = Running{job.job.number, piece, now_us};
}

void DeviceTurns::end(uint64_t number, uint64_t now_us) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;  // It was removed while the piece ran.
  JobState& state = found->second;
  if (state.hangs) {
    // The next one is given twice as long; the others had the device meanwhile.
    state.hung_us = std::max(state.hung_us, now_us - std::min(now_us, state.hangs_since_us));
    state.hangs = false;
    state.waits_since_us = now_us;
    return;
  }
  SKEIN_CHECK(running_ && running_->number == number) << "nothing of job " << number << " runs";
  const Running ended = *std::exchange(running_, std::nullopt);
  const uint64_t taken_us = now_us - std::min(now_us, ended.since_us);
  count(state, taken_us);
  state.waits_since_us = now_us;
  if (ended.piece.need != PieceNeed::kShare) state.idle_since_us = now_us;
  if (ended.piece.need == PieceNeed::kTurn) {
    state.forecast.on_end(ended.piece.index, ended.piece.ends_pass, taken_us, now_us);
    if (ended.piece.ends_pass) end_pass(state, now_us);
  }
  settle(now_us);
}

void DeviceTurns::count(JobState& job, uint64_t taken_us) {
  job.longest_us = std::max(taken_us, job.longest_us - job.longest_us / kFades);
  job.served += static_cast<double>(taken_us) / static_cast<double>(job.job.weight);
}

void DeviceTurns::end_pass(JobState& job, uint64_t now_us) {
  const uint64_t most_us = kTurnGrowthMax * std::max(options_.patience_us, job.last_turn_us);
  const auto passed_since = [&](uint64_t since_us) {
    return std::min(most_us, now_us - std::min(now_us, since_us));
  };
  if (job.pass_since_us > 0) job.last_turn_us = passed_since(job.pass_since_us);
  job.pass_since_us = 0;
  if (!job.is_in_pass) return;
  job.is_in_pass = false;
  *job.position += turn_distance(job.job.weight);
  if (*job.position > kTurnPositionMax) job.position.reset();
  job.last_turn_us = std::max(job.last_turn_us, passed_since(job.turn_since_us));
  holders_.erase(job.job.priority);  // If it is its own successor, that is another turn.
}

std::optional<uint64_t> DeviceTurns::wake_us() const {
  if (running_) return hang_at();
  std::optional<uint64_t> first = held_until_us_;
  for (const auto& [number, state] : jobs_) {
    if (!may_starve(state)) continue;
    first = std::min(first.value_or(UINT64_MAX), starves_at_us(state));
  }
  for (const auto& [priority, number] : holders_) {
    const JobState& state = jobs_.at(number);
    if (is_ready(state) || !is_waited_for(state)) continue;
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
    // What needs the turn could not have run before.
    const bool needs_turn =
        !has_turn->waiting.empty() && has_turn->waiting.front().need == PieceNeed::kTurn;
    if (needs_turn) has_turn->waits_since_us = now_us;
  }
  holders_ = std::move(held);
}

void DeviceTurns::drop_hung(uint64_t now_us) {
  const std::optional<uint64_t> at_us = hang_at();
  if (!at_us || now_us < *at_us) return;
  JobState& state = jobs_.at(running_->number);
  state.hangs = true;
  state.hangs_since_us = running_->since_us;
  state.pass_since_us = 0;
  running_.reset();
  leave(state.job.number, now_us);
}

std::optional<uint64_t> DeviceTurns::hang_at() const {
  if (!running_ || jobs_.size() < 2) return std::nullopt;
  const JobState& state = jobs_.at(running_->number);
  return running_->since_us +
         std::max({options_.hang_us, kHangFactor * state.longest_us, 2 * state.hung_us});
}

void DeviceTurns::drop_idle_holders(uint64_t now_us) {
  // Whoever comes after one that is dropped has just got the turn.
  const std::map<int64_t, uint64_t> held = holders_;
  for (const auto& [priority, number] : held) {
    const JobState& state = jobs_.at(number);
    if (is_ready(state) || !is_waited_for(state)) continue;
    if (now_us < state.idle_since_us + patience_of(state)) continue;
    leave(number, now_us);
  }
}

bool DeviceTurns::is_ready(const JobState& holder) {
  return !holder.hangs &&
         std::any_of(holder.waiting.begin(), holder.waiting.end(),
                     [](const DevicePieceNeed& each) { return each.need == PieceNeed::kTurn; });
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

uint64_t DeviceTurns::starves_at_us(const JobState& job) const {
  return job.waits_since_us + std::max(kStarvedUs, kStarvedFactor * job.longest_us);
}

bool DeviceTurns::may_starve(const JobState& job) const {
  if (job.waiting.empty() || job.hangs) return false;
  // Whoever takes turns has its own.
  return job.waiting.front().need != PieceNeed::kTurn || !job.position || is_holder(job);
}

bool DeviceTurns::is_holder(const JobState& job) const {
  const auto held = holders_.find(job.job.priority);
  return held != holders_.end() && held->second == job.job.number;
}

/// Whose work is awaited before anything else can go on, or who has got nothing for too long.
DeviceTurns::JobState* DeviceTurns::find_urgent(uint64_t now_us) {
  JobState* starved = nullptr;
  for (auto& [number, state] : jobs_) {
    if (state.waiting.empty() || state.hangs) continue;
    if (state.is_urgent) return &state;
    if (!may_starve(state) || now_us < starves_at_us(state)) continue;
    if (!starved || state.waits_since_us < starved->waits_since_us) starved = &state;
  }
  return starved;
}

/// It has the larger priority, or has had less than its part of the time.
bool DeviceTurns::goes_before(const JobState& other, const JobState& job) {
  if (other.job.priority != job.job.priority) return other.job.priority > job.job.priority;
  return !other.position && !job.position && other.served < job.served;
}

uint64_t DeviceTurns::held_until(const JobState& job, uint64_t now_us) const {
  const DevicePieceNeed& piece = job.waiting.front();
  if (piece.need != PieceNeed::kTurn) return 0;
  const std::optional<double> own_us = job.forecast.taken_us(piece.index);
  if (!own_us) return 0;
  const auto now = static_cast<double>(now_us);
  uint64_t until_us = 0;
  for (const auto& [number, other] : jobs_) {
    if (!goes_before(other, job) || !other.waiting.empty()) continue;
    const std::optional<PieceForecast::Next> next = other.forecast.next();
    if (!next || now + *own_us <= next->early_us + kOverrunShare * next->taken_us) continue;
    const double late_us = next->late_us + kLateShare * *own_us;
    if (now < late_us) until_us = std::max(until_us, static_cast<uint64_t>(std::ceil(late_us)));
  }
  return until_us;
}

/// What goes first is what others wait for; then whoever has had the smallest part of the time.
DeviceTurns::JobState* DeviceTurns::next_of(int64_t priority, uint64_t now_us) {
  const JobState* has_turn = holder(priority);
  JobState* next = nullptr;
  for (auto& [number, state] : jobs_) {
    if (state.job.priority != priority || !may_run(state, has_turn)) continue;
    if (const uint64_t until_us = held_until(state, now_us); until_us > 0) {
      held_until_us_ = std::min(held_until_us_.value_or(until_us), until_us);
      continue;
    }
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
    const auto seen = seen_.find(state.job.priority);
    SKEIN_CHECK(state.position && seen != seen_.end() && *state.position <= seen->second)
        << "job " << number << " has begun";
    SKEIN_CHECK(in_pass.emplace(state.job.priority, number).second) << "two passes at once";
    const auto held = holders_.find(state.job.priority);
    SKEIN_CHECK(held != holders_.end() && held->second == number) << "who runs has the turn";
  }
}

}  // namespace skein::plans
