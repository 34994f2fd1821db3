#include "plans/simulator/slowdown.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Kind = Scenario::Kind;

/// Random numbers of pieces and of steps never come from the same stream.
constexpr uint64_t kPieceStream = uint64_t{1} << 32;
constexpr uint64_t kStepStream = uint64_t{2} << 32;

bool is_listed(const Scenario& scenario, int32_t device) {
  return std::find(scenario.devices.begin(), scenario.devices.end(), device) !=
         scenario.devices.end();
}

bool draws(const Scenario& scenario, uint64_t stream, const WorkPiece& piece, uint64_t counter) {
  return random_uniform(scenario.seed, stream + static_cast<uint64_t>(piece.device), counter) <
         scenario.probability;
}

/// Before the piece begins.
double sleep_us(const Scenario& scenario, const WorkPiece& piece, int32_t device_count) {
  if (piece.index < 0) return 0;
  const auto step = static_cast<uint64_t>(piece.step);
  bool sleeps = false;
  if (scenario.kind == Kind::kH1) {
    sleeps = draws(scenario, kPieceStream, piece,
                   (step << 32) | static_cast<uint64_t>(static_cast<uint32_t>(piece.index)));
  } else if (scenario.kind == Kind::kH3) {
    sleeps = piece.index == 0 && piece.device == piece.step % device_count;
  } else if (scenario.kind == Kind::kH4) {
    sleeps = piece.index == 0 && draws(scenario, kStepStream, piece, step);
  }
  return sleeps ? scenario.sleep_us : 0;
}

double end_by_trace(const Scenario& scenario, const WorkPiece& piece, double start_us) {
  const auto& trace = scenario.trace;
  auto next = std::upper_bound(
      trace.begin(), trace.end(), start_us,
      [](double time_us, const Scenario::TracePoint& point) { return time_us < point.from_us; });
  double speed = 1.0;
  for (auto point = next; point != trace.begin();) {
    --point;
    if (point->device != piece.device) continue;
    speed = point->speed;
    break;
  }
  double now_us = start_us;
  double left_us = piece.work_us;  // At speed 1.
  for (; next != trace.end(); ++next) {
    if (next->device != piece.device) continue;
    if (now_us + left_us / speed <= next->from_us) break;
    left_us -= (next->from_us - now_us) * speed;
    now_us = next->from_us;
    speed = next->speed;
  }
  return now_us + std::max(0.0, left_us) / speed;
}

absl::Status bad(const std::string& what, double value, const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat("scenario: ", what, " = ", value, ": ", advice));
}

absl::Status check_trace(const Scenario& scenario, int32_t device_count) {
  double before_us = 0;
  for (size_t i = 0; i < scenario.trace.size(); ++i) {
    const Scenario::TracePoint& point = scenario.trace[i];
    const std::string name = absl::StrCat("trace[", i, "]");
    if (!std::isfinite(point.from_us) || point.from_us < before_us) {
      return bad(name + ".from_us", point.from_us, "must be finite and must not fall");
    }
    before_us = point.from_us;
    if (!std::isfinite(point.speed) || point.speed <= 0) {
      return bad(name + ".speed", point.speed, "must be a finite number above 0");
    }
    if (point.device < 0 || point.device >= device_count) {
      return bad(name + ".device", point.device,
                 absl::StrCat("there are ", device_count, " devices, counted from 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const Scenario& scenario, int32_t device_count) {
  if (!(scenario.probability >= 0 && scenario.probability <= 1)) {
    return bad("probability", scenario.probability, "must be between 0 and 1");
  }
  if (!std::isfinite(scenario.sleep_us) || scenario.sleep_us < 0) {
    return bad("sleep", scenario.sleep_us, "must be a finite number, at least 0");
  }
  if (!std::isfinite(scenario.factor) || scenario.factor <= 0) {
    return bad("factor", scenario.factor, "must be a finite number above 0");
  }
  for (int32_t device : scenario.devices) {
    if (device < 0 || device >= device_count) {
      return bad("devices", device,
                 absl::StrCat("there are ", device_count, " devices, counted from 0"));
    }
  }
  return check_trace(scenario, device_count);
}

double end_of_work(const Scenario& scenario, const WorkPiece& piece, int32_t device_count,
                   double start_us) {
  switch (scenario.kind) {
    case Kind::kH0:
      return start_us + piece.work_us;
    case Kind::kH1:
    case Kind::kH3:
    case Kind::kH4:
      return start_us + sleep_us(scenario, piece, device_count) + piece.work_us;
    case Kind::kH2:
    case Kind::kH5:
      return start_us + piece.work_us * (is_listed(scenario, piece.device) ? scenario.factor : 1);
    case Kind::kH6:
      return end_by_trace(scenario, piece, start_us);
  }
  return start_us;
}

}  // namespace skein::plans
