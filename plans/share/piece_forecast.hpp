#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace skein::plans {

/// When the next piece of work of a job's pass should come, and what it should take: as passes are
/// alike, by those before. Pieces are known by their index in the pass. A value; times are
/// microseconds of one steady clock.
class PieceForecast {
 public:
  /// Pieces further on in a pass are not looked at.
  static constexpr int32_t kIndexMax = 1 << 16;

  /// `index` < 0: not known.
  void on_request(int32_t index, uint64_t now_us);
  void on_end(int32_t index, bool ends_pass, uint64_t taken_us, uint64_t now_us);
  /// Passes will be other ones from now on.
  void forget() { *this = {}; }

  /// What the piece should take; none: there was no such piece yet.
  std::optional<double> taken_us(int32_t index) const;
  /// The next request, behind the newest piece that has ended.
  struct Next {
    double early_us = 0;  // It should not come before,
    double late_us = 0;   // nor after.
    double taken_us = 0;  // What it should take.
  };
  std::optional<Next> next() const;

 private:
  struct Usual {
    std::optional<double> taken_us;
    std::optional<double> gap_us;  // From the end of the piece before it to its request.
    double off_us = 0;             // How far gaps were from that, in the mean.
    int longer = 0;                // Gaps in a row that were far longer than that.
  };

  std::vector<Usual> usual_;  // By index.
  int32_t next_ = -1;         // The index behind the newest piece that has ended; -1: not known.
  uint64_t last_end_us_ = 0;  // With it.
  double last_taken_us_ = 0;  // By that piece.
};

}  // namespace skein::plans
