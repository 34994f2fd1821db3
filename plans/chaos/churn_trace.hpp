#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"
#include "plans/chaos/chaos_script.hpp"

namespace skein::plans {

/// A machine of a spot market came or went.
struct ChurnEvent {
  double at_s = 0;  // By the recording's clock, >= 0.
  bool comes = false;
  std::string machine;
  bool operator==(const ChurnEvent&) const = default;
};

/// In order of time; at one instant machines go before others come.
using ChurnTrace = std::vector<ChurnEvent>;

/// Reads lines "milliseconds,add|remove,machine" with ascending times, as the recordings of Bamboo
/// (NSDI'23) have them. Empty lines, what is behind '#' and machines that go at the instant at
/// which they came do not count. InvalidArgument   names the line, what is wrong in it (a time that
/// is no whole number, is before
///                   the line above or past ten years; a word other than add and remove; a name
///                   that is empty, longer than 64 or not of printable characters; a machine that
///                   comes twice or goes without having come) and, where it helps, shows a right
///                   one; or there are no events, or more than 20,000.
absl::StatusOr<ChurnTrace> parse_churn(std::string_view text);

/// How a recording becomes the members of a run.
struct ChurnOptions {
  double scale = 1;  // It runs so many times faster, > 0.
  // By the recording's clock:
  double notice_s = 0;  // The cloud gives notice so long before a machine goes; 0: it gives none.
  double from_s = -1;   // The start; -1: when the first machine comes.
  double length_s = 0;  // The part that is played, from `from_s`; 0: up to the last event.
};

struct MemberChange {
  enum class Kind {
    kJoins,   // A machine is there, and a worker starts on it.
    kNotice,  // The worker hears that its machine will go.
    kGoes,    // The machine is gone, and the worker with it.
  };
  double at_s = 0;  // By the run's clock.
  Kind kind = Kind::kJoins;
  WorkerId worker;  // Numbered from 1 in the order in which they join.
  int32_t device = 0;
  bool operator==(const MemberChange&) const = default;
};

/// The members of a run of so many devices, as recorded. A worker's device is the free one with the
/// lowest number.
struct Churn {
  /// Only every so many-th machine of the recording takes part, in the order in which they first
  /// come: the smallest number at which no more are there at once than there are devices.
  int64_t every = 1;
  std::vector<MemberChange> begin;    // Who is there at the start, at 0 s; all kJoins.
  std::vector<MemberChange> changes;  // In order of time, all before `length_s`.
  double length_s = 0;                // By the run's clock.
};

/// InvalidArgument   if `devices` < 1, an option is out of range, or nobody is there at any time of
///                   the part that was asked for.
absl::StatusOr<Churn> members_of(const ChurnTrace& trace, int64_t devices,
                                 const ChurnOptions& options);

/// The same for a real run that starts with `begin.size()` workers: those who join are more
/// workers, those who go are killed, and a notice is SIGTERM. Empty if nothing changes.
ChaosScript chaos_of(const Churn& churn);

}  // namespace skein::plans
