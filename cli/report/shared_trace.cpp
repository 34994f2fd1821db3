#include "cli/report/shared_trace.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/json_text.hpp"
#include "gpu/files/durable_file.hpp"

namespace skein::cli {
namespace {

/// A worker of a job: the job's place, and the worker's number there.
using JobWorker = std::pair<size_t, uint64_t>;

/// A number for each worker of a job: those of one process are neighbours, in the order of the
/// jobs. Processes come in the order in which the jobs name them.
std::map<JobWorker, size_t> number_workers(const std::vector<Json>& traces) {
  std::map<JobWorker, std::string> labels;  // Without one a worker is a process of its own.
  for (size_t job = 0; job < traces.size(); ++job) {
    for (const Json& event : traces[job]) {
      const JobWorker worker(job, number_at<uint64_t>(event, "pid", 0));
      labels.try_emplace(worker, absl::StrCat(job, "/", worker.second));
      if (text_at(event, "name") == "process_labels" && event.contains("args")) {
        labels[worker] = text_at(event["args"], "labels");
      }
    }
  }
  std::map<std::string, size_t> places;
  for (const auto& [worker, label] : labels) places.try_emplace(label, places.size());
  std::set<std::pair<size_t, JobWorker>> ordered;
  for (const auto& [worker, label] : labels) ordered.emplace(places.at(label), worker);
  std::map<JobWorker, size_t> numbers;
  for (const auto& [place, worker] : ordered) numbers.emplace(worker, numbers.size() + 1);
  return numbers;
}

void rename(Json& event, const std::string& job, size_t number) {
  event["pid"] = number;
  if (event.contains("id")) event["id"] = absl::StrCat(job, "/", text_at(event, "id"));
  if (text_at(event, "name") != "process_name" || !event.contains("args")) return;
  Json& arguments = event["args"];
  if (arguments.is_object())
    arguments["name"] = absl::StrCat(text_at(arguments, "name"), ", ", job);
}

}  // namespace

absl::Status write_shared_trace(const std::vector<TraceSource>& sources, const std::string& path) {
  std::vector<std::string> jobs;
  std::vector<Json> traces;
  for (const TraceSource& source : sources) {
    std::ifstream file(source.path);
    if (!file) continue;
    Json trace = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!trace.is_object() || !trace.contains("traceEvents") ||
        !std::all_of(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                     [](const Json& event) { return event.is_object(); })) {
      return absl::UnavailableError(absl::StrCat(source.path, " is no trace"));
    }
    jobs.push_back(source.label);
    traces.push_back(std::move(trace["traceEvents"]));
  }
  if (traces.size() < 2) return absl::OkStatus();
  const std::map<JobWorker, size_t> numbers = number_workers(traces);
  Json events = Json::array();
  for (size_t job = 0; job < traces.size(); ++job) {
    for (Json& event : traces[job]) {
      rename(event, jobs[job], numbers.at({job, number_at<uint64_t>(event, "pid", 0)}));
      events.push_back(std::move(event));
    }
  }
  const Json all = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return gpu::write_durably(path, json_text(all));
}

}  // namespace skein::cli
