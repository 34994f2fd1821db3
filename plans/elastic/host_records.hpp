#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plans/base/units.hpp"

namespace skein::plans {

/// Keeps processes that join a run in training and soon die from changing its plan each time, also
/// when each is a new one. Counted are early losses of newcomers: those that come within a trial
/// after a newcomer might first have been given a part. They are counted by where the newcomers
/// came from (their host's name, and the address they connected from), and over all places if they
/// had a part. Losses that come together count once, and losses of workers that have stayed do not
/// count, so a place with many good workers is not held back for one that crashes. The first early
/// loss of a place is free, and so are the first four over all; each further one doubles the time
/// that newcomers are held back, up to 64 s; one is forgotten each minute of a place, and each half
/// minute over all. Places are bounded: the one without a loss for longest is forgotten. A state
/// machine without clock or I/O; times are microseconds of one steady clock.
class HostRecords {
 public:
  explicit HostRecords(double lease_seconds)
      : trial_us_(static_cast<uint64_t>(2 * lease_seconds * kMicrosecondsPerSecond)) {}

  /// A newcomer was lost, that has come from `places` (empty ones do not count) and might have been
  /// given a part from `eligible_us` on. `had_part`: it was given one.
  void on_lost(const std::vector<std::string>& places, uint64_t eligible_us, bool had_part,
               uint64_t now_us);

  struct Hold {
    uint64_t until_us = 0;  // From then on the newcomer may be given a part.
    std::string why;        // "host gpu-7 is flapping"; empty: it is not held back.
  };
  Hold hold(const std::vector<std::string>& places, uint64_t now_us) const;

  void check_invariants() const;

 private:
  struct Record {
    int losses = 0;
    uint64_t counted_us = 0;  // When `losses` was last changed.
    uint64_t last_us = 0;     // The last early loss.
  };
  static Record forgive(Record record, uint64_t period_us, uint64_t now_us);
  static void count(Record& record, uint64_t period_us, uint64_t now_us);

  // Invariants: losses are bounded, and so are places.
  const uint64_t trial_us_;
  std::map<std::string, Record> places_;
  Record everywhere_;
};

}  // namespace skein::plans
