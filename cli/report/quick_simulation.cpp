#include "cli/report/quick_simulation.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/config/planning_inputs.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/schedule/validate_schedule.hpp"

namespace skein::cli {
namespace {

/// What a person can look at; pictures of more would be no pictures.
constexpr int32_t kStagesMax = 1024;
constexpr int32_t kMicrobatchesMax = 4096;
constexpr int64_t kActionsMax = 2'000'000;
/// So wide a link adds nothing to the latency.
constexpr double kBytesPerSecond = 1e30;

absl::Status check(const QuickOptions& options) {
  const auto in_range = [](const char* name, double value, double least, double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " ", value, ": expected ", least, " to ", most));
  };
  if (options.schedule_csv.empty()) {
    SKEIN_RETURN_IF_ERROR(in_range("--stages", options.stages, 1, kStagesMax));
    SKEIN_RETURN_IF_ERROR(in_range("--microbatches", options.microbatches, 1, kMicrobatchesMax));
  }
  SKEIN_RETURN_IF_ERROR(in_range("--virtual", options.virtual_stages, 1, kStagesMax));
  for (const auto& [name, value] : {std::pair("--tf", options.forward),
                                    {"--tb", options.backward},
                                    {"--tw", options.weight},
                                    {"--tc", options.transfer}}) {
    SKEIN_RETURN_IF_ERROR(in_range(name, value, 0, 1e9));
  }
  if (options.forward + options.backward + options.weight <= 0) {
    return absl::InvalidArgumentError("--tf, --tb and --tw are all 0; give one a time");
  }
  const int64_t actions = int64_t{3} * options.stages * options.virtual_stages;
  if (actions * options.microbatches > kActionsMax) {
    return absl::InvalidArgumentError(absl::StrCat("--stages, --virtual and --microbatches make ",
                                                   actions * options.microbatches,
                                                   " actions; at most ", kActionsMax));
  }
  return absl::OkStatus();
}

/// Times of one stage of a rank.
plans::LayerTimes stage_times(const QuickOptions& options) {
  const double share = 1.0 / options.virtual_stages;
  const bool splits = options.weight > 0;
  const double input = splits ? options.backward : options.backward / 2;
  const double weight = splits ? options.weight : options.backward / 2;
  return {options.forward * share, input * share, weight * share};
}

struct Lists {
  plans::ScheduleKind kind = plans::ScheduleKind::kCustom;
  plans::ScheduleShape shape;
  plans::Schedule actions;
};

absl::StatusOr<Lists> lists_of_file(const std::string& path) {
  Lists lists;
  SKEIN_ASSIGN_OR_RETURN(lists.actions, load_schedule_csv(path));
  std::vector<int32_t>& ranks = lists.shape.rank_of_stage;
  for (size_t rank = 0; rank < lists.actions.size(); ++rank) {
    for (const plans::Action& action : lists.actions[rank]) {
      const auto stage = static_cast<size_t>(action.stage);
      if (stage >= kStagesMax || action.microbatch >= kMicrobatchesMax) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", plans::to_text(action),
                                                       " is beyond ", kStagesMax, " stages and ",
                                                       kMicrobatchesMax, " micro-batches"));
      }
      if (stage >= ranks.size()) ranks.resize(stage + 1, static_cast<int32_t>(rank));
      ranks[stage] = static_cast<int32_t>(rank);
      lists.shape.microbatch_count = std::max(lists.shape.microbatch_count, action.microbatch + 1);
    }
  }
  const absl::Status status = plans::validate_schedule(lists.actions, lists.shape.microbatch_count);
  if (status.ok()) return lists;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(status.message())));
}

absl::StatusOr<Lists> lists_of(const QuickOptions& options) {
  if (!options.schedule_csv.empty()) return lists_of_file(options.schedule_csv);
  Lists lists;
  const auto kind = plans::parse_schedule_kind(options.schedule);
  if (!kind.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule: ", std::string(kind.status().message())));
  }
  lists.kind = *kind;
  lists.shape =
      options.virtual_stages == 1
          ? plans::straight_shape(options.stages, options.microbatches)
          : plans::looped_shape(options.stages, options.virtual_stages, options.microbatches);
  plans::ScheduleCosts costs;
  const plans::LayerTimes times = stage_times(options);
  const auto stages = static_cast<size_t>(lists.shape.stage_count());
  costs.stage_times.assign(stages,
                           {times.forward_us, times.backward_input_us, times.backward_weight_us});
  costs.transfer_us.assign(stages - 1, options.transfer);
  SKEIN_ASSIGN_OR_RETURN(lists.actions, plans::make_schedule(lists.kind, lists.shape, costs));
  return lists;
}

plans::Plan plan_of(Lists lists) {
  plans::Plan plan;
  plan.generation = 1;
  plan.schedule = lists.kind;
  plan.microbatch_count = lists.shape.microbatch_count;
  plan.microbatch_rows = 1;
  for (int32_t stage = 0; stage < lists.shape.stage_count(); ++stage) {
    const int32_t rank = lists.shape.rank_of_stage[static_cast<size_t>(stage)];
    plans::ReplicaPlan replica;
    replica.worker = {static_cast<uint32_t>(rank + 1)};
    replica.rows = {0, 1};
    replica.rank = rank;
    plan.stages.push_back({{stage, stage + 1}, {replica}});
  }
  plans::number_replicas(plan.stages);
  plan.groups = plans::reduction_groups(plan.stages, false);
  plan.actions = std::move(lists.actions);
  return plan;
}

/// A stash counts one byte, so that peaks of memory are numbers of stashes.
plans::Profile profile_of(const plans::Plan& plan, const plans::LayerTimes& times) {
  plans::Profile profile;
  profile.source = "written by hand";
  profile.rows = {1};
  plans::LayerProfile layer;
  layer.at = {times};
  layer.stash_row_bytes = 1;
  profile.layers.assign(plan.stages.size(), layer);
  return profile;
}

}  // namespace

absl::StatusOr<QuickSimulation> quick_simulation(const QuickOptions& options) {
  SKEIN_RETURN_IF_ERROR(check(options));
  SKEIN_ASSIGN_OR_RETURN(Lists lists, lists_of(options));
  QuickSimulation quick;
  quick.plan = plan_of(std::move(lists));
  const plans::LinkSpeed link = {kBytesPerSecond, options.transfer};
  quick.cluster.hosts.push_back({"paper", link, link});
  for (size_t rank = 0; rank < quick.plan.actions.size(); ++rank) {
    plans::ClusterDevice device;
    device.name = absl::StrCat("w", rank + 1);
    quick.cluster.devices.push_back(device);
  }
  SKEIN_ASSIGN_OR_RETURN(
      quick.simulation,
      plans::simulate(quick.plan, profile_of(quick.plan, stage_times(options)), quick.cluster, {}));
  return quick;
}

}  // namespace skein::cli
