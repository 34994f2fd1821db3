#include "cli/report/trace_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/config/text_file.hpp"
#include "cli/report/trace_reader.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using Json = nlohmann::json;

constexpr int kStages = 3;
constexpr int kMicrobatches = 4;
constexpr int kTracedSteps = 3;

actors::SliceReport slice(const std::string& name, uint8_t track, uint64_t start_us,
                          uint64_t duration_us, int32_t microbatch) {
  return {name, track, start_us, duration_us, microbatch};
}

/// The transfers of a micro-batch that `stage` takes part in, named as ranks name them.
void add_transfers(actors::TimingsReport& report, int32_t m, uint64_t at) {
  const int32_t stage = report.stage;
  const std::string self = std::to_string(stage);
  const std::string number = std::to_string(m);
  // A send lasts longer than the next one waits: they overlap.
  if (stage + 1 < kStages) {
    report.slices.push_back(slice(self + "SEND_F" + number, 1, at + 60, 150, m));
    report.slices.push_back(slice(self + "RECV_B" + number, 2, at + 500, 1, m));
  }
  if (stage > 0) {
    report.slices.push_back(slice(self + "SEND_B" + number, 1, at + 70, 150, m));
    report.slices.push_back(slice(self + "RECV_F" + number, 2, at, 1, m));
  }
}

/// A step of a worker. Work overlaps within a track, and with that of the step before.
actors::TimingsReport step_of(int32_t stage, uint32_t worker, uint64_t step) {
  actors::TimingsReport report;
  report.worker = {worker};
  report.stage = stage;
  report.step = step;
  const uint64_t begin = 1000 + step * 700 + static_cast<uint64_t>(stage) * 40;
  for (int32_t m = 0; m < kMicrobatches; ++m) {
    const uint64_t at = begin + static_cast<uint64_t>(m) * 100;
    const std::string number = std::to_string(m);
    report.slices.push_back(slice(std::to_string(stage) + "F" + number, 0, at, 120, m));
    report.slices.push_back(slice(std::to_string(stage) + "B" + number, 0, at + 450, 230, m));
    add_transfers(report, m, at);
  }
  report.slices.push_back(slice("reduce", 3, begin + 800, 300, -1));
  report.slices.push_back(slice("commit", 4, begin + 900, 20, -1));
  return report;
}

/// Every stage but the last on one worker, the last on two.
TraceWriter full_trace(const std::string& path = "") {
  TraceWriter trace(path);
  for (uint64_t step = 1; step <= kTracedSteps; ++step) {
    for (int32_t stage = 0; stage < kStages; ++stage) {
      trace.add(step_of(stage, static_cast<uint32_t>(stage + 1), step));
    }
    trace.add(step_of(kStages - 1, kStages + 1, step));
  }
  return trace;
}

std::vector<Json> events_of(const TraceWriter& trace, const std::string& kind) {
  const Json json = Json::parse(trace.to_json());
  std::vector<Json> events;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") == kind) events.push_back(event);
  }
  return events;
}

/// Start and end of each slice, by worker and track.
using Tracks = std::map<std::pair<int, int>, std::vector<std::pair<uint64_t, uint64_t>>>;

Tracks tracks_of(const TraceWriter& trace) {
  Tracks tracks;
  for (const Json& event : events_of(trace, "X")) {
    const uint64_t start = event.at("ts");
    tracks[{event.at("pid"), event.at("tid")}].push_back(
        {start, start + event.at("dur").get<uint64_t>()});
  }
  return tracks;
}

TEST(TraceWriter, AnEmptyTraceIsATrace) {
  const TraceWriter trace("");
  EXPECT_TRUE(trace.empty());
  const Json json = Json::parse(trace.to_json());
  EXPECT_TRUE(json.at("traceEvents").is_array());
  EXPECT_TRUE(json.at("traceEvents").empty());
}

TEST(TraceWriter, NamesTheDeviceOfAWorkerThatHasToldIt) {
  TraceWriter trace = full_trace();
  trace.set_device(2, "cuda:0 a GPU");
  std::map<int, std::string> names;
  for (const Json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
  }
  EXPECT_EQ(names[1], "w1 stage 0");
  EXPECT_EQ(names[2], "w2 stage 1 on cuda:0 a GPU");
}

TEST(TraceWriter, HasEverySliceOnceWithItsStep) {
  const TraceWriter trace = full_trace();
  std::multiset<std::string> expected;
  std::multiset<std::string> found;
  for (const auto& report : trace.reports()) {
    for (const auto& each : report.slices) {
      expected.insert(Json({each.name, report.worker.value, each.track, report.step, report.stage,
                            each.microbatch})
                          .dump());
    }
  }
  for (const Json& event : events_of(trace, "X")) {
    const Json& args = event.at("args");
    found.insert(Json({event.at("name"), event.at("pid"), event.at("tid"), args.at("step"),
                       args.at("stage"), args.at("microbatch")})
                     .dump());
  }
  EXPECT_EQ(found, expected);
}

TEST(TraceWriter, SlicesOfATrackNeverOverlap) {
  size_t tracks = 0;
  for (const auto& [place, slices] : tracks_of(full_trace())) {
    ++tracks;
    EXPECT_TRUE(std::is_sorted(slices.begin(), slices.end()));
    for (size_t i = 1; i < slices.size(); ++i) {
      EXPECT_LE(slices[i - 1].second, slices[i].first)
          << "worker " << place.first << ", track " << place.second << ", slice " << i;
    }
  }
  EXPECT_EQ(tracks, (kStages + 1) * 5U);
}

TEST(TraceWriter, AnOverlappedSliceLosesItsStartOnly) {
  TraceWriter trace("");
  actors::TimingsReport report;
  report.worker = {1};
  report.slices = {slice("inner", 0, 20, 10, 1), slice("long", 0, 10, 40, 0),
                   slice("later", 0, 30, 50, 2), slice("free", 0, 100, 5, 3),
                   slice("other", 1, 20, 10, 4)};
  trace.add(report);
  const Tracks tracks = tracks_of(trace);
  const std::vector<std::pair<uint64_t, uint64_t>> expected = {
      {10, 50}, {50, 50}, {50, 80}, {100, 105}};
  EXPECT_EQ(tracks.at({1, 0}), expected);
  EXPECT_EQ(tracks.at({1, 1}).front(), (std::pair<uint64_t, uint64_t>{20, 30}));
}

TEST(TraceWriter, EveryArrowHasOneStartAndOneFinish) {
  const TraceWriter trace = full_trace();
  std::map<std::string, int> starts;
  std::map<std::string, int> finishes;
  for (const Json& event : events_of(trace, "s")) ++starts[event.at("id")];
  for (const Json& event : events_of(trace, "f")) ++finishes[event.at("id")];
  EXPECT_EQ(starts, finishes);
  EXPECT_EQ(starts.size(), kTracedSteps * kMicrobatches * (kStages - 1) * 2U);
  for (const auto& [id, count] : starts) EXPECT_EQ(count, 1) << id;
}

TEST(TraceWriter, ArrowsGoToTheNeighbourOfTheirKind) {
  const TraceWriter trace = full_trace();
  std::map<std::string, int> from;
  for (const Json& event : events_of(trace, "s")) {
    EXPECT_EQ(event.at("tid"), 1);
    from[event.at("id")] = event.at("pid");
  }
  for (const Json& event : events_of(trace, "f")) {
    EXPECT_EQ(event.at("tid"), 2);
    const std::string id = event.at("id");
    const int to = event.at("pid");
    ASSERT_TRUE(from.contains(id)) << id;
    EXPECT_EQ(id.front(), to > from[id] ? 'F' : 'B') << from[id] << " to " << to;
    // Workers 3 and 4 both hold stage 2.
    EXPECT_EQ(std::abs(std::min(to, kStages) - std::min(from[id], kStages)), 1) << id;
  }
}

TEST(TraceWriter, AnArrowNeedsItsSend) {
  TraceWriter trace("");
  trace.add(step_of(1, 2, 1));
  EXPECT_TRUE(events_of(trace, "f").empty());
}

TEST(TraceWriter, WorkersAndTracksHaveNames) {
  std::map<int, std::string> workers;
  std::map<int, std::set<std::string>> tracks;
  for (const Json& event : events_of(full_trace(), "M")) {
    const std::string name = event.at("args").at("name");
    if (event.at("name") == "process_name") workers[event.at("pid")] = name;
    if (event.at("name") == "thread_name") tracks[event.at("pid")].insert(name);
  }
  const std::map<int, std::string> expected = {
      {1, "w1 stage 0"}, {2, "w2 stage 1"}, {3, "w3 stage 2"}, {4, "w4 stage 2"}};
  EXPECT_EQ(workers, expected);
  for (const auto& [worker, names] : tracks) EXPECT_EQ(names.size(), 6) << worker;
}

TEST(TraceWriter, WhatIsWrittenReadsBack) {
  const tests::TemporaryFolder folder;
  const TraceWriter trace = full_trace(folder.file("trace.json"));
  ASSERT_TRUE(trace.write().ok());
  EXPECT_EQ(*read_text_file(folder.file("trace.json"), "trace"), trace.to_json());
  const auto reports = load_trace(folder.file("trace.json"));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->size(), trace.reports().size());
  std::map<std::pair<uint32_t, uint64_t>, size_t> slices;
  for (const auto& report : trace.reports()) {
    slices[{report.worker.value, report.step}] = report.slices.size();
  }
  for (const auto& report : *reports) {
    EXPECT_EQ(report.slices.size(), (slices[{report.worker.value, report.step}]));
    EXPECT_EQ(report.stage,
              std::min<int32_t>(static_cast<int32_t>(report.worker.value), kStages) - 1);
  }
}

}  // namespace
}  // namespace skein::cli
