#include "actors/collectives/group_reducer.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::actors {

net::ReducerOptions group_reducer(const plans::JobSpec& job, const plans::PlanPart& plan,
                                  const plans::GroupPart& group, const PreparedReplica& replica,
                                  const std::map<plans::WorkerId, std::string>& addresses,
                                  const std::string& own) {
  net::ReducerOptions options;
  options.is_float64 = replica.options.exact_summands > 0;
  if (group.scope == plans::GroupScope::kTied) return options;
  const auto kind = plans::parse_reducer_kind(job.sync.reducer);
  SKEIN_CHECK(kind.ok()) << kind.status();  // The job has been validated.
  options.kind = *kind;
  options.density = job.sync.density;
  options.own_share = static_cast<double>(plans::replica_of(plan, replica.id).rows.count) /
                      static_cast<double>(plan.microbatch_rows);
  options.tensor_floats = stage_tensor_floats(replica.options.model, replica.options.layers);
  // A plain sum needs to know of no tensor, and may be added up by the devices.
  const bool is_plain =
      options.kind == plans::ReducerKind::kSum || options.kind == plans::ReducerKind::kMean;
  if (!is_plain) options.whole = replica.model->stage_gradients().data();
  const bool goes_by_hosts =
      options.kind == plans::ReducerKind::kHiTopK || options.kind == plans::ReducerKind::kHiSum;
  if (!goes_by_hosts) return options;
  std::vector<std::string> members(group.rank_count);
  members[group.rank] = own;
  for (const auto& [rank, partner] : group.partners) {
    const auto address = addresses.find(partner);
    if (address != addresses.end()) members[rank] = address->second;
  }
  options.hosts = host_numbers(members);
  return options;
}

std::vector<size_t> stage_tensor_floats(const plans::ModelSpec& model,
                                        const plans::LayerRange& layers) {
  const bool has_first = layers.begin == 0;
  const bool has_last = layers.end == plans::layer_count(model);
  const bool is_parted = model.tied_head && has_first != has_last;
  const std::vector<plans::ParameterSpec> specs = plans::range_parameters(model, layers);
  std::vector<size_t> result;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool is_tied = is_parted && i == (has_first ? 0 : specs.size() - 1);
    if (!is_tied) result.push_back(static_cast<size_t>(plans::element_count(specs[i])));
  }
  return result;
}

std::vector<uint32_t> host_numbers(const std::vector<std::string>& addresses) {
  auto host = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
  std::vector<uint32_t> result;
  for (const std::string& address : addresses) {
    const auto first = std::find_if(addresses.begin(), addresses.end(), [&](const auto& other) {
      return host(other) == host(address);
    });
    result.push_back(static_cast<uint32_t>(first - addresses.begin()));
  }
  return result;
}

}  // namespace skein::actors
