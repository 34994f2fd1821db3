#include "plans/plan/plan_ranks.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/token_lists.hpp"
#include "plans/schedule/validate_schedule.hpp"

namespace skein::plans {
namespace {

absl::Status wrong_ranks(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the plan is broken: ", what));
}

/// Ascending.
std::vector<int32_t> ranks_of(const std::vector<int32_t>& path) {
  const std::set<int32_t> ranks(path.begin(), path.end());
  return {ranks.begin(), ranks.end()};
}

/// The stages of a rank that lie side by side in a path.
struct StageSpan {
  int32_t rank = 0;
  int32_t begin = 0;
  int32_t end = 0;
};

std::vector<StageSpan> spans_of(const std::vector<int32_t>& path) {
  std::vector<StageSpan> spans;
  for (int32_t stage = 0; stage < static_cast<int32_t>(path.size()); ++stage) {
    const int32_t rank = path[static_cast<size_t>(stage)];
    if (spans.empty() || spans.back().rank != rank) spans.push_back({rank, stage, stage});
    spans.back().end = stage + 1;
  }
  return spans;
}

/// The actions of the stages of spans, from those of one stage in place of each.
ActionList spread(const ActionList& actions, const std::vector<StageSpan>& spans) {
  ActionList all;
  for (const Action& action : actions) {
    const StageSpan& span = spans[static_cast<size_t>(action.stage)];
    for (int32_t i = 0; i < span.end - span.begin; ++i) {
      const bool is_forward = action.type == ActionType::kForward;
      all.push_back(
          {is_forward ? span.begin + i : span.end - 1 - i, action.type, action.microbatch});
    }
  }
  return all;
}

/// The lists of a path, for its ranks in ascending order.
absl::StatusOr<Schedule> make_lists(const Plan& plan, ScheduleKind kind,
                                    const std::vector<int32_t>& path) {
  const std::vector<int32_t> ranks = ranks_of(path);
  const auto index_of = [&](int32_t rank) {
    return static_cast<int32_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  };
  const std::vector<StageSpan> spans = spans_of(path);
  const bool acts_as_one = plan.mode == kLocalMode && spans.size() == ranks.size();
  ScheduleShape shape;
  shape.microbatch_count = static_cast<int32_t>(plan.microbatch_count);
  if (!acts_as_one) {
    for (int32_t rank : path) shape.rank_of_stage.push_back(index_of(rank));
    return make_schedule(kind, shape);
  }
  for (const StageSpan& span : spans) shape.rank_of_stage.push_back(index_of(span.rank));
  SKEIN_ASSIGN_OR_RETURN(Schedule lists, make_schedule(kind, shape));
  for (ActionList& actions : lists) actions = spread(actions, spans);
  return lists;
}

/// A worker has one place: a rank, and a position among the replicas of each of its stages.
absl::Status check_places(const Plan& plan) {
  using Place = std::pair<int32_t, size_t>;
  std::map<WorkerId, Place> place_of;
  std::map<Place, WorkerId> worker_at;
  std::map<int32_t, size_t> count_of;  // Replicas at each stage of a rank.
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    for (size_t position = 0; position < stage.replicas.size(); ++position) {
      const ReplicaPlan& replica = stage.replicas[position];
      if (replica.rank < 0 || replica.rank >= static_cast<int32_t>(plan.actions.size())) {
        return wrong_ranks(
            absl::StrCat("stage ", s, " is on rank ", replica.rank, " of ", plan.actions.size()));
      }
      if (plan.mode != kLocalMode && replica.rank != stage.rank()) {
        return wrong_ranks(
            absl::StrCat("stage ", s, " is on ranks ", stage.rank(), " and ", replica.rank));
      }
      const Place place{replica.rank, position};
      if (place_of.emplace(replica.worker, place).first->second != place) {
        return wrong_ranks(absl::StrCat("worker ", replica.worker.value, " has two roles"));
      }
      if (worker_at.emplace(place, replica.worker).first->second != replica.worker) {
        return wrong_ranks(
            absl::StrCat("the stages of rank ", replica.rank, " are on unlike workers"));
      }
    }
    const size_t count = stage.replicas.size();
    if (count_of.emplace(stage.rank(), count).first->second != count) {
      return wrong_ranks(
          absl::StrCat("the stages of rank ", stage.rank(), " are on unlike workers"));
    }
  }
  return absl::OkStatus();
}

/// The path's lists can be executed.
absl::Status check_path(const Plan& plan, const std::vector<int32_t>& path) {
  Schedule lists;
  for (int32_t rank : ranks_of(path)) {
    lists.push_back(plan.actions[static_cast<size_t>(rank)]);
    for (const Action& action : lists.back()) {
      const bool fits = action.stage >= 0 && action.stage < static_cast<int32_t>(path.size()) &&
                        path[static_cast<size_t>(action.stage)] == rank;
      if (!fits)
        return wrong_ranks(absl::StrCat("rank ", rank, " has no stage for ", to_text(action)));
    }
  }
  return validate_schedule(lists, static_cast<int32_t>(plan.microbatch_count));
}

}  // namespace

std::vector<std::vector<int32_t>> rank_paths(const Plan& plan) {
  std::set<std::vector<int32_t>> known;
  std::vector<std::vector<int32_t>> paths;
  const size_t count = plan.mode == kLocalMode ? plan.stages.front().replicas.size() : 1;
  for (size_t position = 0; position < count; ++position) {
    std::vector<int32_t> path;
    for (const StagePlan& stage : plan.stages) path.push_back(stage.replicas[position].rank);
    if (known.insert(path).second) paths.push_back(std::move(path));
  }
  return paths;
}

int32_t stash_peak_of(const Plan& plan, int32_t stage) {
  int32_t most = 0;
  for (const ReplicaPlan& replica : plan.stages[static_cast<size_t>(stage)].replicas) {
    most = std::max(most, stash_peak(plan.actions[static_cast<size_t>(replica.rank)], stage));
  }
  return most;
}

size_t pipeline_length(const Plan& plan) {
  size_t longest = 0;
  for (const std::vector<int32_t>& path : rank_paths(plan)) {
    longest = std::max(longest, spans_of(path).size());
  }
  return longest;
}

absl::Status set_schedule(Plan& plan, ScheduleKind kind) {
  Schedule actions;
  for (const std::vector<int32_t>& path : rank_paths(plan)) {
    SKEIN_ASSIGN_OR_RETURN(Schedule lists, make_lists(plan, kind, path));
    const std::vector<int32_t> ranks = ranks_of(path);
    actions.resize(std::max(actions.size(), static_cast<size_t>(ranks.back()) + 1));
    for (size_t i = 0; i < ranks.size(); ++i) {
      actions[static_cast<size_t>(ranks[i])] = std::move(lists[i]);
    }
  }
  plan.actions = std::move(actions);
  plan.schedule = kind;
  return absl::OkStatus();
}

absl::Status check_ranks(const Plan& plan) {
  if (plan.mode == kTokenMode) return check_token_lists(plan);
  SKEIN_RETURN_IF_ERROR(check_places(plan));
  std::set<int32_t> used;
  for (const std::vector<int32_t>& path : rank_paths(plan)) {
    SKEIN_RETURN_IF_ERROR(check_path(plan, path));
    used.insert(path.begin(), path.end());
  }
  for (int32_t rank = 0; rank < static_cast<int32_t>(plan.actions.size()); ++rank) {
    if (!used.contains(rank)) return wrong_ranks(absl::StrCat("rank ", rank, " has no stage"));
  }
  return absl::OkStatus();
}

}  // namespace skein::plans
