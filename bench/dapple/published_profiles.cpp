#include "published_profiles.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/config/profile_file.hpp"
#include "planner_cells.hpp"
#include "plans/planner/candidate_schedule.hpp"

namespace skein::bench {
namespace {

constexpr int32_t kDevicesOfHost = 4;
constexpr int32_t kSizes[] = {4, 8, 16, 32, 64};
constexpr int64_t kMicrobatchesPerDevice = 4;  // Each has the rows of the profile.
/// Bytes per second that PipeDream's optimizer was asked with.
constexpr double kInside = 10e9;
constexpr double kNetwork = 1.25e9;
constexpr double kInsideUs = 5;  // As in DAPPLE's clusters.
constexpr double kNetworkUs = 10;

/// What PipeDream's own optimizer answers for eight devices.
struct OwnAnswer {
  std::vector<int64_t> cuts;      // First layer of each stage, and their number.
  std::vector<int32_t> replicas;  // How many each stage has.
};
struct PublishedModel {
  const char* file;
  OwnAnswer answer;  // Empty: it was not asked.
};
const std::vector<PublishedModel>& published_models() {
  static const std::vector<PublishedModel> models = {
      {"vgg16", {{0, 24, 25, 28, 29, 40}, {4, 1, 1, 1, 1}}},
      {"alexnet", {{0, 13, 15, 17, 21, 22}, {4, 1, 1, 1, 1}}},
      {"resnet50", {}},
      {"gnmt", {{0, 2, 6, 13, 48, 75, 96, 99}, {1, 1, 1, 1, 1, 2, 1}}},
  };
  return models;
}

plans::ClusterSpec hosts_of_four(int32_t devices, bool alike) {
  plans::ClusterSpec cluster;
  for (int32_t d = 0; d < devices; ++d) {
    if (d % kDevicesOfHost == 0) {
      plans::ClusterHost& host = cluster.hosts.emplace_back();
      host.name = "host" + std::to_string(cluster.hosts.size() - 1);
      host.inside = {kInside, kInsideUs};
      host.network = {kNetwork, kNetworkUs};
    }
    plans::ClusterDevice& device = cluster.devices.emplace_back();
    device.name = "device" + std::to_string(d);
    device.host = d / kDevicesOfHost;
    if (!alike && d % 2 == 1) device.speed = 0.5;
  }
  return cluster;
}

plans::PlanRequest published_request(const plans::Profile& profile, int32_t devices, bool alike) {
  return cell_request(profile, profile.rows.back() * kMicrobatchesPerDevice * devices,
                      hosts_of_four(devices, alike));
}

/// The best step that the answer comes to, over the numbers of rows; infinity if none can be run.
CellResult result_of_answer(const OwnAnswer& answer, const plans::PlanRequest& request) {
  std::vector<std::vector<int32_t>> devices;
  int32_t next = 0;
  for (const int32_t count : answer.replicas) {
    std::vector<int32_t>& own = devices.emplace_back();
    for (int32_t r = 0; r < count; ++r) own.push_back(next++);
  }
  CellResult best;
  plans::CostModel model(request, request.cluster);
  for (const int64_t rows : request.microbatch_rows) {
    const auto plan =
        plans::plan_of(plans::straight_candidate_plan(answer.cuts, devices, rows), model);
    if (!plan.ok()) continue;
    const auto simulation =
        plans::simulate(*plan, request.profile, request.cluster, request.simulation);
    if (simulation.ok() && simulation->step_us < best.step_us) best = {simulation->step_us, *plan};
  }
  return best;
}

std::string cuts_of(const plans::Plan& plan) {
  std::string text;
  for (const plans::StagePlan& stage : plan.stages) {
    if (!text.empty()) text += " | ";
    text += std::to_string(stage.layers.begin) + "-" + std::to_string(stage.layers.end) + " x" +
            std::to_string(stage.replicas.size());
  }
  return text;
}

class PublishedTable {
 public:
  PublishedTable() : gains_(plans::planners().size()) {
    std::printf(
        "Simulated step, ms, layers measured by PipeDream's authors; hosts of four devices, "
        "10 GB/s inside,\n1.25 GB/s between; as many rows as %ld times their 64 for each device; "
        "memory is no limit\n%-9s %3s %-6s",
        static_cast<long>(kMicrobatchesPerDevice), "model", "", "speeds");
    for (const plans::Planner& planner : plans::planners()) std::printf(" %9.9s", planner.name);
    std::printf("  %-24s\n", "devices of ours");
  }

  void add(const PublishedModel& model, const plans::Profile& profile, int32_t devices,
           bool alike) {
    const plans::PlanRequest request = published_request(profile, devices, alike);
    const std::vector<CellResult> results = plan_cell(request);
    std::printf("%-9s %3d %-6s", model.file, devices, alike ? "1" : "1, 1/2");
    for (size_t i = 0; i < results.size(); ++i) {
      const double gain = results[i].step_us / results[0].step_us;
      if (std::isfinite(gain)) {
        std::printf(" %9.1f", results[i].step_us / 1000);
      } else {
        std::printf(" %9s", "-");
      }
      gains_[i].add(gain);
      if (gain < 1 - kRounding) ++worse_;
    }
    std::printf("  %-24s\n", shape_of(results[0].plan, 24).c_str());
    std::fflush(stdout);
    if (alike && devices == 2 * kDevicesOfHost && !model.answer.replicas.empty()) {
      add_answer(model, request, results);
    }
  }

  int finish() const {
    std::printf("\nStep time of others / ours: geometric mean, largest, of cells\n");
    for (size_t i = 1; i < gains_.size(); ++i) print_gains(plans::planners()[i].name, gains_[i]);
    std::printf(
        "\nPipeDream's own optimizer, asked for eight devices of speed 1, and our form of it, as "
        "layers x replicas\n%s",
        answers_.c_str());
    std::printf(
        "Who judges is the simulator that ours searched with, so that none is faster is by "
        "construction; the layers are\nmeasured, and our planner was not developed on them. "
        "Cells where another planner is faster: %d\n",
        worse_);
    return worse_ == 0 ? 0 : 1;
  }

 private:
  void add_answer(const PublishedModel& model, const plans::PlanRequest& request,
                  const std::vector<CellResult>& results) {
    const auto line = [&](const char* whose, const CellResult& result) {
      char text[64];
      std::snprintf(text, sizeof(text), "  %-9s %-10s %9.1f ms  ", model.file, whose,
                    result.step_us / 1000);
      answers_ += text + cuts_of(result.plan) + "\n";
    };
    line("its own", result_of_answer(model.answer, request));
    line("our form", result_of("pipedream", results));
    line("ours", results[0]);
  }

  std::vector<Gains> gains_;
  int worse_ = 0;
  std::string answers_;
};

}  // namespace

int judge_published_profiles(const std::string& folder, int32_t devices) {
  PublishedTable table;
  for (const PublishedModel& model : published_models()) {
    const auto profile = cli::load_profile(folder + "/" + model.file + ".json");
    if (!profile.ok()) {
      std::fprintf(stderr, "%s\n", std::string(profile.status().message()).c_str());
      return 1;
    }
    for (const int32_t size : kSizes) {
      if (size > devices) break;
      for (const bool alike : {true, false}) table.add(model, *profile, size, alike);
    }
  }
  return table.finish();
}

}  // namespace skein::bench
