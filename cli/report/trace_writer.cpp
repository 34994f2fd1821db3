#include "cli/report/trace_writer.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/json_text.hpp"
#include "gpu/files/durable_file.hpp"

namespace skein::cli {
namespace {

constexpr std::array kTracks = {"compute",       "send",    "receive",
                                "gradient sync", "control", "checkpoint"};
/// Slices that are kept: 100 bytes each make a file of 20 MB.
constexpr size_t kSlicesMax = 200'000;

Json metadata(const char* name, uint32_t pid, int tid, const std::string& value) {
  const char* key = name == std::string_view("process_labels") ? "labels" : "name";
  return {{"ph", "M"}, {"name", name}, {"pid", pid}, {"tid", tid}, {"args", {{key, value}}}};
}

/// A slice with what it belongs to.
struct Entry {
  actors::SliceReport slice;
  const actors::TimingsReport* report = nullptr;
};

/// "0SEND_F3" of stage 0 and "1RECV_F3" of stage 1 are the two ends of one transfer: what both know
/// is kind, micro-batch, step, the boundary between the stages, and the pipeline replica.
std::string transfer_id(const Entry& entry) {
  const actors::SliceReport& slice = entry.slice;
  const auto stage = static_cast<int32_t>(std::strtol(slice.name.c_str(), nullptr, 10));
  const bool forward = slice.name.find("_F") != std::string::npos;
  const bool sends = slice.track == 1;
  const int32_t boundary = forward == sends ? stage : stage - 1;
  std::string id =
      absl::StrCat(forward ? "F" : "B", slice.microbatch, "/", entry.report->step, "/", boundary);
  if (entry.report->pipeline >= 0) absl::StrAppend(&id, "/", entry.report->pipeline);
  return id;
}

/// Slices of one track in order of time, without overlaps: Perfetto drops overlapping ones, so a
/// slice that begins before its predecessor ends is shortened at its start.
void put_in_order(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.slice.start_us < b.slice.start_us;
  });
  uint64_t end = 0;
  for (Entry& entry : entries) {
    actors::SliceReport& slice = entry.slice;
    const uint64_t slice_end = slice.start_us + slice.duration_us;
    slice.start_us = std::max(slice.start_us, end);
    slice.duration_us = slice_end > slice.start_us ? slice_end - slice.start_us : 0;
    end = slice.start_us + slice.duration_us;
  }
}

Json arguments_of(const Entry& entry) {
  const actors::TimingsReport& report = *entry.report;
  Json arguments = {{"step", report.step},
                    {"stage", report.stage},
                    {"microbatch", entry.slice.microbatch},
                    {"version", report.version},
                    {"staleness", report.staleness},
                    {"weight_delay", report.weight_delay}};
  if (report.pipeline >= 0) arguments["pipeline"] = report.pipeline;
  return arguments;
}

}  // namespace

void TraceWriter::add(const actors::TimingsReport& report) {
  size_t slices = report.slices.size();
  for (const auto& each : reports_) slices += each.slices.size();
  if (slices <= kSlicesMax) reports_.push_back(report);
}

std::string TraceWriter::to_json() const {
  Json events = Json::array();
  // A track of a worker over all its steps: overlaps matter across steps too.
  std::map<std::pair<uint32_t, int>, std::vector<Entry>> tracks;
  std::map<uint32_t, std::set<int32_t>> stages;
  for (const actors::TimingsReport& report : reports_) {
    stages[report.worker.value].insert(report.stage);
    for (const actors::SliceReport& slice : report.slices) {
      tracks[{report.worker.value, slice.track}].push_back({slice, &report});
    }
  }
  for (auto& [place, entries] : tracks) put_in_order(entries);
  std::set<std::string> sent;
  std::set<std::string> drawn;
  for (const bool sends_first : {true, false}) {
    for (const auto& [place, entries] : tracks) {
      const auto [pid, tid] = place;
      if ((tid == 1) != sends_first) continue;
      for (const Entry& entry : entries) {
        const actors::SliceReport& slice = entry.slice;
        events.push_back({{"ph", "X"},
                          {"name", slice.name},
                          {"pid", pid},
                          {"tid", tid},
                          {"ts", slice.start_us},
                          {"dur", slice.duration_us},
                          {"args", arguments_of(entry)}});
        if (tid != 1 && tid != 2) continue;
        const std::string id = transfer_id(entry);
        const bool starts = tid == 1;
        // A split micro-batch has several ends; one arrow shows the way.
        if (starts ? !sent.insert(id).second : (!sent.contains(id) || !drawn.insert(id).second)) {
          continue;
        }
        events.push_back({{"ph", starts ? "s" : "f"},
                          {"bp", "e"},
                          {"id", id},
                          {"name", "transfer"},
                          {"cat", "transfer"},
                          {"pid", pid},
                          {"tid", tid},
                          {"ts", slice.start_us}});
      }
    }
  }
  for (const auto& [pid, own] : stages) {
    const auto device = devices_.find(pid);
    events.push_back(metadata("process_name", pid, 0,
                              absl::StrCat("w", pid, " stage ", absl::StrJoin(own, ", "),
                                           device == devices_.end() ? "" : " on ",
                                           device == devices_.end() ? "" : device->second)));
    if (const auto process = processes_.find(pid); process != processes_.end()) {
      events.push_back(metadata("process_labels", pid, 0, process->second));
    }
    for (size_t track = 0; track < kTracks.size(); ++track) {
      events.push_back(metadata("thread_name", pid, static_cast<int>(track), kTracks[track]));
    }
  }
  return json_text(Json({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}));
}

absl::Status TraceWriter::write() const { return gpu::write_durably(path_, to_json()); }

}  // namespace skein::cli
