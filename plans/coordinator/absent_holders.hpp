#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Each absence costs the run a change of plan, however short it is: who comes and goes all the
/// time is not waited for without end. As long as a worker may take to be back, `kRejoinUs`.
inline constexpr uint64_t kAbsenceUsMin = 2'500'000;

/// Workers that are not here and may hold state that nobody here has: which of them may come back
/// with it and until when, and why the others cannot. Asked before state is rolled back. A state
/// machine without clock or I/O; times are microseconds of one steady clock.
class AbsentHolders {
 public:
  struct Patience {
    uint64_t wait_us = 0;  // This time.
    /// Beyond the first wait since `clear`, for one that comes and goes, in all: the sum of the
    /// times it was away, of which a short one counts as `kAbsenceUsMin`.
    uint64_t more_us = 0;
  };
  /// The worker lives, for all we know, and is waited for. `address`: where it listens, if it
  /// lives; may be empty.
  void await(WorkerId worker, const std::string& why, const Patience& patience,
             const std::string& address, uint64_t now_us);
  /// The worker is gone, or its lease is over. Changes nothing if one that had its number before is
  /// waited for.
  void give_up(WorkerId worker, const std::string& why);
  /// Nobody listens at the address any more: the process that did is dead. False if none that is
  /// waited for did.
  bool on_gone(const std::string& address);
  /// It is here, and says itself what it holds.
  void on_back(WorkerId worker, uint64_t now_us);
  /// A step is committed and its workers are here, or steps were taken back: nobody needs what was
  /// held before.
  void clear() {
    absent_.clear();
    left_us_.clear();
  }

  /// Who is still waited for, ascending.
  std::vector<WorkerId> awaited(uint64_t now_us) const;
  /// When the last of them is given up; 0: there is none.
  uint64_t last_until_us() const;
  /// What has become of each: "w2: no heartbeat for 3.1 s; w3: ...".
  std::string describe() const;

 private:
  struct Absence {
    std::string why;
    uint64_t since_us = 0;  // With `until_us`.
    uint64_t until_us = 0;  // 0: it is not waited for.
    std::string address;
  };
  std::map<WorkerId, Absence> absent_;
  std::map<WorkerId, uint64_t> left_us_;  // What is left of `Patience`; also who was back since.
};

}  // namespace skein::plans
