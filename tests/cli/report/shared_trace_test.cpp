#include "cli/report/shared_trace.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/report/trace_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

/// The trace of two workers; `processes` are theirs.
void write_trace(const std::string& path, const std::vector<std::string>& processes = {}) {
  TraceWriter writer(path);
  for (uint32_t worker : {1u, 2u}) {
    if (!processes.empty()) writer.set_process(worker, processes[worker - 1]);
    actors::TimingsReport report;
    report.worker = {worker};
    report.stage = static_cast<int32_t>(worker) - 1;
    report.slices = {
        {"0F0", 0, 1'000, 10, 0},
        {worker == 1 ? "0SEND_F0" : "1RECV_F0", static_cast<uint8_t>(worker), 1'010, 5, 0}};
    writer.add(report);
  }
  ASSERT_TRUE(writer.write().ok());
}

TEST(SharedTrace, HasEachWorkerOncePerJobUnderOneClock) {
  const tests::TemporaryFolder folder;
  for (const char* name : {"a.json", "b.json"}) write_trace(folder.file(name));
  const std::string path = folder.file("both.json");
  ASSERT_TRUE(
      write_shared_trace({{"a", folder.file("a.json")}, {"b", folder.file("b.json")}}, path).ok());
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  std::set<uint64_t> processes;
  std::set<std::string> arrows;
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    processes.insert(event["pid"].get<uint64_t>());
    if (event.contains("id")) arrows.insert(event["id"].get<std::string>());
    if (event["name"] == "process_name") names.insert(event["args"]["name"].get<std::string>());
  }
  EXPECT_EQ(processes.size(), 4u);
  EXPECT_EQ(arrows.size(), 2u) << "no arrow goes from one job to the other";
  EXPECT_EQ(names.size(), 4u) << "each says whose it is";
}

TEST(SharedTrace, PutsWhatOneProcessDoesTogetherWhateverItsNumbers) {
  const tests::TemporaryFolder folder;
  write_trace(folder.file("a.json"), {"pid 7 on h", "pid 8 on h"});
  write_trace(folder.file("b.json"), {"pid 8 on h", "pid 7 on h"});
  const std::string path = folder.file("both.json");
  ASSERT_TRUE(
      write_shared_trace({{"a", folder.file("a.json")}, {"b", folder.file("b.json")}}, path).ok());
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  std::map<uint64_t, std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
  }
  std::string order;
  for (const auto& [pid, name] : names) order += name + "; ";
  EXPECT_EQ(order, "w1 stage 0, a; w2 stage 1, b; w2 stage 1, a; w1 stage 0, b; ");
}

TEST(SharedTrace, LeavesOutRunsWithoutATraceAndRefusesWhatIsNone) {
  const tests::TemporaryFolder folder;
  write_trace(folder.file("a.json"));
  const std::string path = folder.file("both.json");
  EXPECT_TRUE(
      write_shared_trace({{"a", folder.file("a.json")}, {"b", folder.file("none")}}, path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(folder.file("b.json")) << "[1, 2";
  EXPECT_FALSE(
      write_shared_trace({{"a", folder.file("a.json")}, {"b", folder.file("b.json")}}, path).ok());
}

}  // namespace
}  // namespace skein::cli
