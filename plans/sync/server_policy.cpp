#include "plans/sync/server_policy.hpp"

namespace skein::plans {

GroupDecisions ServerPolicy::on_ready(const ReadySignal& signal, uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (const auto stage = table_.accept(signal)) advance(*stage, decisions);
  return decisions;
}

GroupDecisions ServerPolicy::on_group_end(const GroupOutcome& outcome, uint64_t /*now_us*/) {
  GroupDecisions decisions;
  const auto ended = table_.end(outcome.number);
  if (!ended) return decisions;
  for (const uint32_t pipeline : ended->pipelines) {
    if (!outcome.ok) versions_.keep(ended->stage, pipeline);
  }
  advance(ended->stage, decisions);
  return decisions;
}

}  // namespace skein::plans
