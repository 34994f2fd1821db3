#include "cli/report/trace_reader.hpp"

#include <fstream>
#include <iterator>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "cli/config/json_text.hpp"

namespace skein::cli {
namespace {

constexpr int kTracksMax = 16;

}  // namespace

absl::StatusOr<std::vector<actors::TimingsReport>> load_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("no trace ", path, "; run with profiling.enable_profiling"));
  }
  const Json json = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no Chrome trace"));
  }
  // By worker, step and stage.
  std::map<std::tuple<uint32_t, uint64_t, int32_t>, actors::TimingsReport> reports;
  for (const Json& event : json["traceEvents"]) {
    if (!event.is_object() || !event.contains("ph") || event["ph"] != "X") continue;
    const auto args = event.find("args");
    const auto name = event.find("name");
    const int track = number_at(event, "tid", -1);
    if (args == event.end() || !args->is_object() || name == event.end() || !name->is_string() ||
        track < 0 || track >= kTracksMax) {
      continue;
    }
    const auto worker = number_at<uint32_t>(event, "pid", 0);
    const auto step = number_at<uint64_t>(*args, "step", 0);
    const auto stage = number_at<int32_t>(*args, "stage", 0);
    actors::TimingsReport& report = reports[{worker, step, stage}];
    report.worker = {worker};
    report.step = step;
    report.stage = stage;
    report.pipeline = number_at<int32_t>(*args, "pipeline", -1);
    report.version = number_at<uint64_t>(*args, "version", 0);
    report.staleness = number_at<uint64_t>(*args, "staleness", 0);
    report.weight_delay = number_at<uint32_t>(*args, "weight_delay", 0);
    report.slices.push_back(
        {name->get<std::string>(), static_cast<uint8_t>(track), number_at<uint64_t>(event, "ts", 0),
         number_at<uint64_t>(event, "dur", 0), number_at<int32_t>(*args, "microbatch", -1)});
  }
  std::vector<actors::TimingsReport> result;
  for (auto& [place, report] : reports) result.push_back(std::move(report));
  return result;
}

}  // namespace skein::cli
