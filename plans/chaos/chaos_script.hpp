#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"

namespace skein::plans {

/// A fault that is done to a run on purpose, and when.
struct ChaosAction {
  enum class Kind {
    kSlow,      // The worker computes `factor` times slower than its own device; 1: as it is.
    kKill,      // SIGKILL: it is gone with no word.
    kTerm,      // SIGTERM: it is asked to leave.
    kPause,     // SIGSTOP, and SIGCONT after `duration_s`: it is alive, and silent.
    kDropLink,  // The data connections between `worker` and `other` break and stay refused.
    kJoin,      // One more worker process is started, which joins.
  };
  /// When it happens: at the time, or once so many steps are done.
  struct Trigger {
    double at_s = 0;                  // From the start of the first step.
    std::optional<uint64_t> at_step;  // Steps done; then `at_s` is 0.
    bool operator==(const Trigger&) const = default;
  };
  Kind kind = Kind::kKill;
  WorkerId worker;        // 0: the coordinator, which can only be killed; unused by kJoin.
  WorkerId other;         // The other end for kDropLink; else 0.
  double factor = 1;      // The factor of kSlow, >= 1.
  double duration_s = 0;  // > 0 of kPause; of kSlow and kDropLink 0 is for ever.
  Trigger when;
  bool operator==(const ChaosAction&) const = default;
};

/// In the order of the times, then of the steps, then of the text.
using ChaosScript = std::vector<ChaosAction>;

/// Reads entries "target:what@when", separated by semicolons:
///   w1:slow=4x@10s           4 times slower from then on; slow=4x,20s recovers after 20 s,
///   w1:slow=1x@40s           and 1x sets it back
///   w2:kill@30s              SIGKILL; term is SIGTERM
///   w3:pause=5s@step=12      SIGSTOP for 5 s, once 12 steps are done
///   link(w1,w2):drop@500ms   for ever; drop=2s for 2 s
///   coordinator:kill@1m
///   another:join@45s         one more worker, which gets the next number
/// Times are numbers with ms, s or m. Spaces around entries and a last semicolon do no harm.
/// InvalidArgument   says which entry is wrong, what in it, and shows one that is right.
absl::StatusOr<ChaosScript> parse_chaos(std::string_view text);

/// Parses back to the same.
std::string to_text(const ChaosAction& action);
std::string to_text(const ChaosScript& script);

}  // namespace skein::plans
