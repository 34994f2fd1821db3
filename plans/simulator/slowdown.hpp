#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::plans {

/// How devices are slower than they should be: the heterogeneity suite, the same for real runs on
/// emulated devices and for the simulator. All times in microseconds.
///   H0  nothing
///   H1  each action on each device, with `probability`, sleeps `sleep_us` first (SDPipe)
///   H2  the devices of `devices` are `factor` times slower forever (Basu et al.)
///   H3  one device per step, in turn, sleeps `sleep_us` before its first action (Fela)
///   H4  each device at each step, with `probability`, sleeps `sleep_us` first (Fela)
///   H5  the devices of `devices` are shared by `factor` jobs: `factor` times slower (P-Reduce)
///   H6  a trace: speeds of devices, piecewise constant over time (SDPipe, figure 10)
struct Scenario {
  enum class Kind { kH0, kH1, kH2, kH3, kH4, kH5, kH6 };
  struct TracePoint {
    double from_us = 0;
    int32_t device = 0;
    double speed = 1.0;  // From then on, relative to the device's own speed; > 0.
    bool operator==(const TracePoint&) const = default;
  };
  Kind kind = Kind::kH0;
  double probability = 0.1;
  double sleep_us = 0;
  double factor = 1.0;
  std::vector<int32_t> devices;
  std::vector<TracePoint> trace;  // Ascending by `from_us`.
  uint64_t seed = 1;
  bool operator==(const Scenario&) const = default;
};

/// "H0", "H1 sleep=5000 probability=0.1 seed=3", "H2 factor=4 devices=0,2",
/// "H6 trace=0:1:0.5,2e6:1:1" (from_us:device:speed). A kind takes the keys it uses; probability
/// and seed may be left out.
/// InvalidArgument   names what is not understood, missing, given twice or out of range.
absl::StatusOr<Scenario> parse_scenario(std::string_view text);
/// Parses back to the same scenario, but for fields that its kind does not use.
std::string to_text(const Scenario& scenario);

/// InvalidArgument naming the field if a number is out of range, a device is not one of
/// 0..device_count - 1, or the trace does not ascend.
absl::Status validate(const Scenario& scenario, int32_t device_count);

/// One piece of compute work on a device.
struct WorkPiece {
  int32_t device = 0;
  int32_t step = 0;
  int32_t index = 0;   // Position in the device's list of actions of the step; -1: the update.
  double work_us = 0;  // On this device, undisturbed.
};

/// When the piece that starts at `start_us` ends. A pure function: the same piece always sleeps the
/// same, whatever else happens. An update never sleeps, but is slowed down like the rest.
double end_of_work(const Scenario& scenario, const WorkPiece& piece, int32_t device_count,
                   double start_us);

}  // namespace skein::plans
