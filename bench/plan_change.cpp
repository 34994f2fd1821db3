// What one change of plan costs the coordinator, for more and more simulated workers: messages,
// bytes, and CPU; with processors, and with GPUs, whose groups are formed by their devices. The
// world is that of tests/bench/plan_change_world.hpp.
//
//   plan_change [WORKERS...]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/plan_change_world.hpp"

namespace {

void print(const skein::bench::PlanChangeCost& cost) {
  const uint64_t messages = cost.to_workers + cost.to_coordinator;
  const auto number = static_cast<double>(cost.workers);
  std::printf("%6s %8llu %7llu %9llu %11.1f %12llu %12llu %14.0f %12llu %10.3f %9.3f\n",
              cost.device.c_str(), static_cast<unsigned long long>(cost.workers),
              static_cast<unsigned long long>(cost.stages),
              static_cast<unsigned long long>(messages), static_cast<double>(messages) / number,
              static_cast<unsigned long long>(cost.rendezvous),
              static_cast<unsigned long long>(cost.bytes), static_cast<double>(cost.bytes) / number,
              static_cast<unsigned long long>(cost.longest_assign), cost.decide_seconds,
              cost.coordinator_seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<uint64_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::strtoull(argv[i], nullptr, 10));
  if (counts.empty()) counts = {10, 100, 1000, 4000};
  std::printf("%6s %8s %7s %9s %11s %12s %12s %14s %12s %10s %9s\n", "device", "workers", "stages",
              "messages", "a worker", "rendezvous", "bytes", "bytes/worker", "longest plan",
              "decided s", "CPU s");
  for (const std::string device : {"cpu", "cuda"}) {
    for (uint64_t workers : counts) {
      const skein::bench::PlanChangeCost cost = skein::bench::change_plan(workers, device);
      if (!cost.has_started) {
        std::fprintf(stderr, "plan_change: with %llu workers (%s), training did not start\n",
                     static_cast<unsigned long long>(workers), device.c_str());
        return 1;
      }
      print(cost);
    }
  }
  return 0;
}
