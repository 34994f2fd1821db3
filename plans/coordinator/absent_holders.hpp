#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Workers that are not here and may hold state that nobody here has: which of them may come back
/// with it and until when, and why the others cannot. Asked before state is rolled back. A state
/// machine without clock or I/O; times are microseconds of one steady clock.
class AbsentHolders {
 public:
  /// The worker lives, for all we know: it is waited for until then, but if it comes and goes not
  /// for longer than `longest_us` beyond the first time since `clear`. `address`: where it listens,
  /// if it lives; may be empty.
  void await(WorkerId worker, const std::string& why, uint64_t until_us, uint64_t longest_us,
             const std::string& address);
  /// The worker is gone, or its lease is over. Changes nothing if one that had its number before is
  /// waited for.
  void give_up(WorkerId worker, const std::string& why);
  /// Nobody listens at the address any more: the process that did is dead. False if none that is
  /// waited for did.
  bool on_gone(const std::string& address);
  /// It is here, and says itself what it holds.
  void on_back(WorkerId worker) { absent_.erase(worker); }
  /// A step is committed, or steps were taken back: nobody needs what was held before.
  void clear() {
    absent_.clear();
    first_until_us_.clear();
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
    uint64_t until_us = 0;  // 0: it is not waited for.
    std::string address;
  };
  std::map<WorkerId, Absence> absent_;
  std::map<WorkerId, uint64_t> first_until_us_;  // Also of those who were back since.
};

}  // namespace skein::plans
