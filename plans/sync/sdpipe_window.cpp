#include "plans/sync/sdpipe_window.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

constexpr double kUnmeasuredStepUs = 10'000;  // Makes the first window 1 ms, as the artefact's.
constexpr double kSmoothing = 0.2;            // The average is over about the last five steps.

}  // namespace

WindowOptions artefact_window() {
  WindowOptions options;
  options.scales = false;
  options.initial = 1000;
  options.least = 10;
  options.most = 10'000;
  return options;
}

uint64_t AdaptiveWindow::window_us(const WindowOptions& options) const {
  const double unit_us = options.scales ? step_us_.value_or(kUnmeasuredStepUs) : 1;
  return static_cast<uint64_t>(window_ * unit_us);
}

void AdaptiveWindow::on_step(uint64_t step_us) {
  const auto sample = static_cast<double>(step_us);
  step_us_ = step_us_ ? *step_us_ + kSmoothing * (sample - *step_us_) : sample;
}

void AdaptiveWindow::on_group(const WindowOptions& options, size_t group_size) {
  window_ = group_size < options.group_size_min
                ? std::min(options.growth * window_, options.most)
                : std::max(options.shrinkage * window_, options.least);
}

}  // namespace skein::plans
