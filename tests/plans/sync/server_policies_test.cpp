// All policies with servers under the driver of the policies among peers.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plans/sync/hetpipe.hpp"
#include "plans/sync/parameter_server.hpp"
#include "plans/sync/progressive_server.hpp"
#include "policy_driver.hpp"

namespace skein::plans {
namespace {

struct ServerPolicy {
  std::string name;
  std::function<std::unique_ptr<GroupScheduler>(const PipelineLayout&)> make;
};

void PrintTo(const ServerPolicy& policy, std::ostream* out) { *out << policy.name; }

ServerPolicy server(const std::string& name, ServerMode mode, uint64_t bound = 0) {
  return {name, [mode, bound](const PipelineLayout& layout) {
            return parameter_server(layout, {mode, bound});
          }};
}

std::vector<ServerPolicy> policies() {
  return {server("synchronous", ServerMode::kSynchronous),
          server("asynchronous", ServerMode::kAsynchronous),
          server("bounded", ServerMode::kBounded, 2),
          {"hetpipe",
           [](const PipelineLayout& layout) {
             return std::make_unique<HetPipePolicy>(layout,
                                                    HetPipeOptions{.wave = 3, .distance = 1});
           }},
          {"grouped",
           [](const PipelineLayout& layout) {
             PipelineGroups groups(layout.pipelines);
             for (uint32_t c = 0; c < layout.pipelines; ++c)
               groups[c] = static_cast<int32_t>(c % 3);
             return std::make_unique<GroupedServerPolicy>(layout, groups);
           }},
          {"progressive", [](const PipelineLayout& layout) {
             return std::make_unique<ProgressiveServerPolicy>(layout, ProgressiveServerOptions{});
           }}};
}

struct ServerPolicies : testing::TestWithParam<ServerPolicy> {};

TEST_P(ServerPolicies, GoOnWhateverStallsDiesJoinsOrComesTwice) {
  for (const auto& [layout, options] : driver_settings()) {
    const auto policy = GetParam().make(layout);
    PolicyDriver driver(*policy, layout, options);
    ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ServerPolicies, testing::ValuesIn(policies()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace skein::plans
