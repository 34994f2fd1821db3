#include "plans/collectives/group_memory.hpp"

#include <algorithm>

#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kSumPeers = 3;
constexpr int64_t kLinkPeers = 2;
constexpr int64_t kLinksOfStage = 2;
constexpr int64_t kSimpleBytes = int64_t{4} << 20;
constexpr int64_t kLl128Bytes = 120 * 640 * 8 * 8;  // Elements of a thread, threads, slots, bytes.
constexpr int64_t kLlBytes = int64_t{1} << 19;
constexpr int64_t kPeerBytes = kGroupChannelsMax * (kSimpleBytes + kLl128Bytes + kLlBytes);

/// Nobody is on the other side of a link. A plan from a file has the ranks that it has.
bool has_one_rank(const ParallelismSpec& parallelism) {
  return parallelism.pipeline_parallel_degree == 1 && parallelism.plan.empty();
}

}  // namespace

int64_t device_group_bytes(const JobSpec& job, int64_t gpus) {
  // Only synchronous steps have an order of operations that devices can agree on.
  if (gpus < 2 || job.comm.backend == "gloo") return 0;
  if (trains_by_tokens(job) || begins_in_pipelines(job)) return 0;
  const int64_t sum_peers = std::min(gpus - 1, kSumPeers);
  const bool is_alone = has_one_rank(job.parallelism);
  const int64_t link_peers = is_alone ? 0 : std::min(gpus - 1, kLinkPeers);
  const int64_t stages = std::max<int64_t>(job.parallelism.virtual_stages, 1);
  const bool is_tied = job.model.tied_head && (!is_alone || stages > 1);
  const int64_t peers =
      stages * (sum_peers + kLinksOfStage * link_peers) + (is_tied ? sum_peers : 0);
  return peers * kPeerBytes;
}

}  // namespace skein::plans
