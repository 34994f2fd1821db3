// How the time to plan grows with devices and layers, one core, simulations included: all workers
// together, and pipeline replicas. Prints the median of five runs with the fastest and the slowest,
// in seconds of this process's CPU time.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "plans/job/job_spec.hpp"
#include "plans/planner/pipelines_planner.hpp"
#include "plans/planner/planner.hpp"
#include "plans/planner/skein_planner.hpp"

namespace skein::bench {
namespace {

constexpr int kRuns = 5;

/// Hosts of `devices_each` devices, speeds 1, 1/2 and 1/4 mixed, every fourth device with less
/// memory; layers of BERT-Large at 2 rows on a V100.
plans::PlanRequest request_for(int64_t devices, int64_t devices_each, int64_t layers) {
  plans::PlanRequest request;
  request.profile.source = "written by hand";
  request.profile.device = "V100";
  request.profile.rows = {2};
  for (int64_t l = 0; l < layers; ++l) {
    plans::LayerProfile& layer = request.profile.layers.emplace_back();
    layer.name = "layer " + std::to_string(l);
    layer.at = {{2690, 2235, 2235}};
    layer.activation_row_bytes = 2'150'000;
    layer.stash_row_bytes = 73'000'000;
    layer.parameter_bytes = 50'400'000;
  }
  for (int64_t d = 0; d < devices; ++d) {
    if (d % devices_each == 0) {
      plans::ClusterHost& host = request.cluster.hosts.emplace_back();
      host.name = "host" + std::to_string(request.cluster.hosts.size() - 1);
      host.inside = {25e9, 5};
      host.network = {3.125e9, 10};
    }
    plans::ClusterDevice& device = request.cluster.devices.emplace_back();
    device.name = "device" + std::to_string(d);
    device.host = static_cast<int32_t>(request.cluster.hosts.size()) - 1;
    device.speed = 1.0 / static_cast<double>(1 << ((d / devices_each + d) % 3));
    device.memory_bytes = d % 4 == 3 ? 32'000'000'000 : 80'000'000'000;
  }
  request.global_batch_rows = 2048;
  for (int64_t rows = 4; rows <= 256; rows *= 2) request.microbatch_rows.push_back(rows);
  request.schedules = {plans::ScheduleKind::k1F1B, plans::ScheduleKind::k1F1BPB};
  request.simulation.bucketed_reduction = true;
  request.simulation.keeps_records = false;
  return request;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Under `overlapped`, as many claims to a step as there are hosts of eight devices.
plans::JobSpec job_of_pipelines(int64_t devices, int64_t layers) {
  plans::JobSpec job;
  job.model.layers = layers - 2;
  job.model.tied_head = false;
  job.sync.policy = "overlapped";
  job.parallelism.pipeline_parallel_degree = plans::kAutoDegree;
  job.parallelism.data_parallel_replicate_degree = std::max<int64_t>(2, devices / 8);
  job.training.micro_batch_size = 2 * job.parallelism.data_parallel_replicate_degree;
  job.training.global_batch_size = 8 * job.training.micro_batch_size;
  return job;
}

enum class Kind { kTogether, kPipelineReplicas };

void measure(Kind kind, int64_t devices, int64_t devices_each, int64_t layers) {
  const plans::PlanRequest request = request_for(devices, devices_each, layers);
  const plans::JobSpec job = job_of_pipelines(devices, layers);
  std::array<double, kRuns> seconds{};
  std::string answer;
  for (double& run : seconds) {
    const double begin = cpu_seconds();
    const auto made = kind == Kind::kTogether ? plans::plan_skein(request)
                                              : plans::plan_pipeline_replicas(job, request);
    run = cpu_seconds() - begin;
    answer = made.ok() ? std::to_string(made->plan.stages.size()) + " stages, step " +
                             std::to_string(static_cast<int64_t>(made->objective_us / 1000)) + " ms"
                       : std::string(made.status().message()).substr(0, 60);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-8s %7ld %12ld %6ld   %7.3f %7.3f %7.3f   %s\n",
              kind == Kind::kTogether ? "together" : "apart", static_cast<long>(devices),
              static_cast<long>(devices_each), static_cast<long>(layers), seconds[kRuns / 2],
              seconds.front(), seconds.back(), answer.c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace skein::bench

/// With "DEVICES LAYERS" only that size is measured.
int main(int argc, char** argv) {
  using skein::bench::Kind;
  using skein::bench::measure;
  std::printf("         devices devices/host layers    median     min     max   answer\n");
  if (argc == 3) {
    for (const int64_t devices_each : {8, 1}) {
      measure(Kind::kTogether, std::atoll(argv[1]), devices_each, std::atoll(argv[2]));
    }
    return 0;
  }
  for (const int64_t layers : {50, 100, 200}) {
    for (const int64_t devices : {8, 16, 32, 64, 128, 256, 512, 1000}) {
      measure(Kind::kTogether, devices, 8, layers);
    }
  }
  for (const int64_t devices : {64, 1000}) measure(Kind::kTogether, devices, 1, 200);
  for (const int64_t devices : {8, 16, 32, 64}) measure(Kind::kPipelineReplicas, devices, 8, 50);
  return 0;
}
