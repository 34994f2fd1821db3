#include "plans/sync/parameter_server.hpp"

#include "plans/sync/grouped_server.hpp"
#include "plans/sync/hetpipe.hpp"

namespace skein::plans {

std::unique_ptr<GroupScheduler> parameter_server(const PipelineLayout& layout,
                                                 const ParameterServerOptions& options,
                                                 uint64_t first_step) {
  if (options.mode == ServerMode::kSynchronous) {
    return std::make_unique<GroupedServerPolicy>(layout, PipelineGroups(layout.pipelines, 0),
                                                 /*has_group_servers=*/false, first_step);
  }
  const uint64_t distance = options.mode == ServerMode::kBounded ? options.bound : kAnyDistance;
  return std::make_unique<HetPipePolicy>(layout, HetPipeOptions{.wave = 1, .distance = distance},
                                         first_step);
}

}  // namespace skein::plans
