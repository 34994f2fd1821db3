#include "cli/report/shared_trace.hpp"

#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gpu/files/durable_file.hpp"

namespace skein::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The same worker's processes are neighbours, in the order of the jobs.
void rename(OrderedJson& event, const std::string& label, size_t number, size_t count) {
  event["pid"] = event["pid"].get<uint64_t>() * count + number;
  if (event.contains("id")) event["id"] = absl::StrCat(label, "/", event["id"].get<std::string>());
  if (event["name"] != "process_name") return;
  auto& name = event["args"]["name"];
  name = absl::StrCat(name.get<std::string>(), ", ", label);
}

}  // namespace

absl::Status write_shared_trace(const std::vector<TraceSource>& sources, const std::string& path) {
  OrderedJson events = OrderedJson::array();
  size_t found = 0;
  for (size_t n = 0; n < sources.size(); ++n) {
    std::ifstream file(sources[n].path);
    if (!file) continue;
    const OrderedJson trace = OrderedJson::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!trace.is_object() || !trace.contains("traceEvents")) {
      return absl::UnavailableError(absl::StrCat(sources[n].path, " is no trace"));
    }
    ++found;
    for (OrderedJson event : trace["traceEvents"]) {
      rename(event, sources[n].label, n, sources.size());
      events.push_back(std::move(event));
    }
  }
  if (found < 2) return absl::OkStatus();
  const OrderedJson all = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return gpu::write_durably(path, all.dump());
}

}  // namespace skein::cli
