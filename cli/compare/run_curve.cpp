#include "cli/compare/run_curve.hpp"

#include <time.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/json_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

/// "2026-11-21T18:08:22.460Z" in seconds.
std::optional<double> parse_time(const std::string& text) {
  tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0;
  return static_cast<double>(timegm(&parts)) + fraction;
}

template <class Number>
std::optional<Number> number(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<Number>();
}

std::string text(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// JSON has no infinity: a loss that is none is written as null.
std::optional<double> loss_of(const Json& line) {
  const auto found = line.find("loss");
  if (found != line.end() && found->is_null()) return std::numeric_limits<double>::infinity();
  return number<double>(line, "loss");
}

/// Follows the lines of one run.
class CurveReader {
 public:
  absl::Status add(const Json& line) {
    const std::string kind = text(line, "kind");
    if (kind != "step" && kind != "validation") return absl::OkStatus();
    const auto time = parse_time(text(line, "time"));
    const auto step = number<uint64_t>(line, "step");
    const auto loss = loss_of(line);
    if (!time || !step || !loss) {
      return absl::InvalidArgumentError(
          absl::StrCat("a line of kind ", kind, " lacks its time, step or loss"));
    }
    if (kind == "step") return add_step(line, *time, *step);
    curve_.points.push_back({seconds_, *step, samples_, *loss});
    validating_ += number<double>(line, "seconds").value_or(0);
    return absl::OkStatus();
  }

  absl::StatusOr<RunCurve> finish() {
    if (!start_) return absl::InvalidArgumentError("there is no step");
    curve_.seconds = seconds_;
    if (seconds_ > 0) {
      curve_.steps_per_second = static_cast<double>(steps_) / seconds_;
      curve_.samples_per_second = static_cast<double>(samples_) / seconds_;
    }
    if (stale_lines_ > 0) curve_.staleness = staleness_ / stale_lines_;
    return std::move(curve_);
  }

 private:
  absl::Status add_step(const Json& line, double time, uint64_t step) {
    const auto samples = number<uint64_t>(line, "samples");
    const auto taken = number<double>(line, "step_seconds");
    if (!samples || !taken) {
      return absl::InvalidArgumentError("a line of kind step lacks samples or step_seconds");
    }
    if (!start_) start_ = time - *taken;
    seconds_ = std::max(0.0, time - *start_ - validating_);
    samples_ += *samples;
    // Pipeline replicas under local updates commit several steps in one line.
    steps_ += number<uint64_t>(line, "steps").value_or(1);
    if (const auto bytes = number<double>(line, "bytes_sent")) {
      curve_.bytes_sent = curve_.bytes_sent.value_or(0) + *bytes;
    }
    if (const auto staleness = number<double>(line, "staleness")) {
      staleness_ += *staleness;
      ++stale_lines_;
    }
    const auto pipelines = line.find("pipeline_samples");
    if (pipelines == line.end() || !pipelines->is_array()) return absl::OkStatus();
    curve_.pipeline_samples.resize(std::max(curve_.pipeline_samples.size(), pipelines->size()));
    for (size_t c = 0; c < pipelines->size(); ++c) {
      if ((*pipelines)[c].is_number())
        curve_.pipeline_samples[c] += (*pipelines)[c].get<uint64_t>();
    }
    return absl::OkStatus();
  }

  RunCurve curve_;
  std::optional<double> start_;  // When the first step ended.
  double seconds_ = 0;
  double validating_ = 0;  // Seconds of all validations so far.
  uint64_t samples_ = 0;
  uint64_t steps_ = 0;
  double staleness_ = 0;
  double stale_lines_ = 0;
};

}  // namespace

const CurvePoint* RunCurve::reached(double target) const {
  const auto found = std::find_if(points.begin(), points.end(),
                                  [&](const CurvePoint& point) { return point.loss <= target; });
  return found == points.end() ? nullptr : &*found;
}

std::optional<double> RunCurve::loss_at(uint64_t samples) const {
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].samples == samples) return points[i].loss;
    if (points[i].samples < samples || i == 0) continue;
    const CurvePoint& before = points[i - 1];
    if (before.samples > samples) continue;
    const double share = static_cast<double>(samples - before.samples) /
                         static_cast<double>(points[i].samples - before.samples);
    return before.loss + share * (points[i].loss - before.loss);
  }
  return std::nullopt;
}

absl::StatusOr<RunCurve> parse_run_curve(const std::string& jsonl, const std::string& name) {
  CurveReader reader;
  size_t number = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(jsonl, '\n'))) {
    ++number;
    if (line.empty()) continue;
    const Json json = parse_json(line);
    const std::string place = absl::StrCat(name, ":", number, ": ");
    if (!json.is_object()) return absl::InvalidArgumentError(place + "this is no JSON object");
    const absl::Status status = reader.add(json);
    if (!status.ok()) return absl::InvalidArgumentError(place + std::string(status.message()));
  }
  auto curve = reader.finish();
  if (!curve.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", std::string(curve.status().message())));
  }
  return curve;
}

}  // namespace skein::cli
