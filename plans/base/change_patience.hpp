#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::plans {

/// When to look whether another way is better, and when to believe it: not for little, and not for
/// a moment's noise. Looks that speak for what there is become rarer. Ours. A state machine without
/// clock or I/O.
class ChangePatience {
 public:
  struct Options {
    double gain_min = 1.05;    // What another way has to promise over the present one.
    int32_t looks_min = 2;     // In a row, that have to say so.
    uint64_t steps_first = 1;  // From a look to the next.
    uint64_t steps_max = 1;    // Twice as many after each look in vain, up to so many.
    int32_t wishes = 0;        // Looks in a row that have said so already.
  };
  explicit ChangePatience(const Options& options)
      : options_(options), steps_between_looks_(options.steps_first), wishes_(options.wishes) {}

  uint64_t steps_between_looks() const { return steps_between_looks_; }
  /// Looks in a row, up to the last one, that spoke for another way; 0 behind a change.
  int32_t wishes() const { return wishes_; }
  /// What a look has shown, in one unit, more is better; nothing is promised by 0. True: it is time
  /// to change.
  bool on_look(double present, double promised) {
    if (promised <= 0 || promised < options_.gain_min * present) {
      wishes_ = 0;
      steps_between_looks_ = std::min(2 * steps_between_looks_, options_.steps_max);
      return false;
    }
    steps_between_looks_ = options_.steps_first;  // The next look decides, soon.
    if (++wishes_ < options_.looks_min) return false;
    wishes_ = 0;
    return true;
  }

 private:
  Options options_;
  uint64_t steps_between_looks_;
  int32_t wishes_;
};

/// The first looks after a change: who changes often does so ever more rarely, as each change costs
/// something.
inline uint64_t steps_after_changes(uint64_t steps, uint32_t changes) {
  constexpr uint32_t kDoublingsMax = 5;
  return steps << std::min(changes, kDoublingsMax);
}

}  // namespace skein::plans
