#include "cli/spot/spot_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

constexpr int kDoublingsMax = 10;  // Past the longest wait for any period.
constexpr std::chrono::milliseconds kInterruptPeriod(20);

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

double spot_wait_seconds(int failures, double period_seconds) {
  const int doublings = std::clamp(failures - 1, 0, kDoublingsMax);
  const double wait = period_seconds * static_cast<double>(1 << doublings);
  return std::max(period_seconds, std::min(wait, kSpotRetrySecondsMax));
}

SpotWatch::SpotWatch(SpotWatchOptions options) : options_(std::move(options)) {
  for (Cloud cloud : options_.clouds) sources_.emplace_back(cloud);
  thread_ = std::thread([this] { run(); });
}

SpotWatch::~SpotWatch() {
  std::unique_lock<std::mutex> lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  // A question may begin just after an interruption, so one is not enough.
  while (!ended_) {
    lock.unlock();
    if (options_.interrupt) options_.interrupt();
    lock.lock();
    changed_.wait_for(lock, kInterruptPeriod, [this] { return ended_; });
  }
  lock.unlock();
  thread_.join();
}

std::optional<SpotNotice> SpotWatch::take_notice() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(notice_, std::nullopt);
}

bool SpotWatch::is_ending() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ending_;
}

void SpotWatch::run() {
  int failures = 0;
  bool has_warned = false;
  while (!is_ending()) {
    SpotSource::Round round = poll();
    failures = round.trouble.empty() ? 0 : failures + 1;
    if (failures > 0 && !has_warned && !is_ending()) {
      has_warned = true;
      options_.warn(absl::StrCat("cannot see spot notices: ", round.trouble,
                                 "; trying again without further warnings"));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (round.notice) {
      notice_ = std::move(round.notice);
      break;
    }
    const std::chrono::duration<double> wait(spot_wait_seconds(failures, options_.period_seconds));
    changed_.wait_for(lock, wait, [this] { return ending_; });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

SpotSource::Round SpotWatch::poll() {
  SpotSource::Round round;
  for (SpotSource& source : sources_) {
    round = source.poll(options_.ask, unix_seconds());
    if (round.trouble.empty()) {
      sources_ = {source};  // Copied before `source` goes.
      break;
    }
    round.trouble = absl::StrCat(cloud_name(source.cloud()), ": ", round.trouble);
  }
  return round;
}

}  // namespace skein::cli
