#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace skein::plans {

/// Why a state machine did not take an event. None of these is an error: messages are repeated,
/// late and early, and peers may say what they should not.
enum class DropReason {
  kRepeated = 0,     // It was said before.
  kStale = 1,        // It belongs to another term, generation, plan or step, which is over.
  kEarly = 2,        // It belongs to a step or a group that has not begun.
  kUnknown = 3,      // Its sender or subject does not exist, or is not a member any more.
  kUnexpected = 4,   // Nobody waits for it in the present phase.
  kNotAllowed = 5,   // Its sender does not own what it speaks of.
  kOutOfBounds = 6,  // A number, text or list in it is larger than anybody may send.
};
inline constexpr size_t kDropReasons = 7;

/// Goes into logs and metrics.jsonl: "repeated", "stale", ...
constexpr const char* to_text(DropReason why) {
  constexpr const char* kNames[kDropReasons] = {
      "repeated", "stale", "early", "unknown", "unexpected", "not_allowed", "out_of_bounds"};
  return kNames[static_cast<size_t>(why)];
}

/// The answer of a handler that did not take its event: `return Dropped{DropReason::kStale};`.
struct Dropped {
  DropReason why = DropReason::kUnexpected;
};

/// What a handler of a state machine says about an event: it took it, and decided these things
/// (perhaps nothing), or it dropped it, and why. A dropped event has changed nothing.
///
/// `Decisions`  a container of what is to be done, in order.
template <class Decisions>
class Outcome {
 public:
  Outcome() = default;  // It was taken, and nothing follows.
  Outcome(Decisions decisions) : decisions_(std::move(decisions)) {}  // NOLINT: that is what it is.
  Outcome(Dropped dropped) : dropped_(dropped.why) {}                 // NOLINT: as above.

  bool is_accepted() const { return !dropped_.has_value(); }
  bool is_dropped() const { return dropped_.has_value(); }
  /// None: it was taken.
  std::optional<DropReason> why_dropped() const { return dropped_; }
  /// Empty if the event was dropped.
  const Decisions& decisions() const& { return decisions_; }
  Decisions&& decisions() && { return std::move(decisions_); }

 private:
  std::optional<DropReason> dropped_;
  Decisions decisions_;
};

/// How many events were dropped, by reason. Belongs to whoever hands events to a state machine.
class DropCounts {
 public:
  void add(DropReason why) { ++counts_[static_cast<size_t>(why)]; }
  /// Counts the event if it was dropped; returns whether it was taken.
  template <class Decisions>
  bool note(const Outcome<Decisions>& outcome) {
    if (outcome.is_dropped()) add(*outcome.why_dropped());
    return outcome.is_accepted();
  }
  void add(const DropCounts& others) {
    for (size_t i = 0; i < kDropReasons; ++i) counts_[i] += others.counts_[i];
  }
  uint64_t of(DropReason why) const { return counts_[static_cast<size_t>(why)]; }
  /// By reason, in the order of the enumeration; as it travels.
  std::array<uint64_t, kDropReasons>& counts() { return counts_; }
  const std::array<uint64_t, kDropReasons>& counts() const { return counts_; }
  uint64_t total() const {
    uint64_t sum = 0;
    for (uint64_t each : counts_) sum += each;
    return sum;
  }
  bool operator==(const DropCounts&) const = default;

 private:
  std::array<uint64_t, kDropReasons> counts_{};
};

}  // namespace skein::plans
