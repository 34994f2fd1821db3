#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/spot/spot_source.hpp"

namespace skein::cli {

inline constexpr double kSpotPeriodSeconds = 2;  // The shortest lead is 30 s; AWS advises 5 s.
/// Half of the shortest lead, so that a service that is back is asked before it is too late.
inline constexpr double kSpotRetrySecondsMax = 15;

/// How long to wait after so many failed rounds in a row; 0 after one that was answered.
double spot_wait_seconds(int failures, double period_seconds);

struct SpotWatchOptions {
  std::vector<Cloud> clouds;  // More than one: the first that answers is the one.
  /// Asks the metadata service; called on the watch's thread. May not be empty.
  AskMetadata ask;
  /// Makes an `ask` that is under way return; called on the thread that ends the watch, again and
  /// again until it has. May be empty.
  std::function<void()> interrupt;
  /// Told once at most, that the service does not answer; called on the watch's thread.
  std::function<void(const std::string& line)> warn;
  double period_seconds = kSpotPeriodSeconds;
};

/// Asks a cloud on a thread of its own whether it takes this machine back, until it says so or the
/// watch ends. Thread-safe.
class SpotWatch {
 public:
  explicit SpotWatch(SpotWatchOptions options);
  ~SpotWatch();
  SpotWatch(const SpotWatch&) = delete;
  SpotWatch& operator=(const SpotWatch&) = delete;

  /// The notice, once; none before it is there and ever after. Does not block.
  std::optional<SpotNotice> take_notice();

 private:
  void run();
  /// One round of questions; what was in the way if none was answered.
  SpotSource::Round poll();
  bool is_ending();

  const SpotWatchOptions options_;
  std::vector<SpotSource> sources_;  // Used by the watch's thread only.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool ended_ = false;  // The thread does nothing any more.
  std::optional<SpotNotice> notice_;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace skein::cli
