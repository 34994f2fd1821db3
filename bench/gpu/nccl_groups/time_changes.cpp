// How long changes take, and that a loss costs no sample.

#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/gpu/nccl_groups/phases.hpp"
#include "bench/gpu/nccl_groups/team.hpp"
#include "bench/gpu/nccl_groups/work.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

constexpr int64_t kSamples = 12;  // Samples in a step.
constexpr int64_t kSteps = 4;
constexpr int64_t kStepOfLoss = 2;

std::vector<int> first_ranks(int count) {
  std::vector<int> members(static_cast<size_t>(count));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

absl::StatusOr<double> timed(const std::function<absl::Status()>& what) {
  const auto start = std::chrono::steady_clock::now();
  SKEIN_RETURN_IF_ERROR(what());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

absl::Status form(Team& team, const std::vector<int>& members, const std::string& name) {
  team.rank(members[0]).send("id");
  SKEIN_ASSIGN_OR_RETURN(const std::string id, team.rank(members[0]).answer());
  std::vector<std::string> commands;
  for (size_t i = 0; i < members.size(); ++i) {
    commands.push_back(absl::StrCat("form ", name, " ", i, " ", members.size(), " ", id));
  }
  return team.ask(members, commands).status();
}

/// Commands that spread a step's samples over the members.
std::vector<std::string> shares(size_t members, const std::string& name, int64_t step) {
  std::vector<std::string> commands;
  const auto count = static_cast<int64_t>(members);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * kSamples / count;
    commands.push_back(absl::StrCat("reduce ", name, " ", step, " ", first, " ",
                                    (i + 1) * kSamples / count - first));
  }
  return commands;
}

absl::Status train(Team& team, const std::vector<int>& members, const std::string& name,
                   int64_t step) {
  SKEIN_RETURN_IF_ERROR(team.ask(members, shares(members.size(), name, step)).status());
  return team.ask_all(members, "apply").status();  // The commit.
}

/// The weights of a run that nothing disturbed.
std::string undisturbed_digest(int64_t floats) {
  std::vector<float> weights(static_cast<size_t>(floats));
  for (int64_t step = 0; step < kSteps; ++step) add_gradients(step, 0, kSamples, weights);
  return absl::StrCat(digest(weights));
}

absl::Status check_sums(const std::vector<std::string>& digests) {
  for (const std::string& each : digests) {
    if (each == digests[0]) continue;
    return absl::InternalError("the members of a group have unlike sums");
  }
  return absl::OkStatus();
}

/// Splits the group into even and odd ranks, uses both and gives them up.
absl::StatusOr<double> time_split(Team& team, const std::vector<int>& all) {
  std::vector<std::string> commands;
  for (int rank : all) commands.push_back(absl::StrCat("split all ", rank % 2, " part"));
  const auto time = timed([&] { return team.ask(all, commands).status(); });
  if (!time.ok()) return time;
  for (int parity : {0, 1}) {
    std::vector<int> members;
    for (int rank : all) {
      if (rank % 2 == parity) members.push_back(rank);
    }
    SKEIN_ASSIGN_OR_RETURN(const auto sums, team.ask(members, shares(members.size(), "part", 0)));
    SKEIN_RETURN_IF_ERROR(check_sums(sums));
  }
  SKEIN_RETURN_IF_ERROR(team.ask_all(all, "close part").status());
  return time;
}

/// Makes a group without rank 0, which need not do anything.
absl::StatusOr<double> time_shrink(Team& team, const std::vector<int>& all) {
  const std::vector<int> stay(all.begin() + 1, all.end());
  const auto time =
      timed([&] { return team.ask_all(stay, "shrink all healthy smaller 0").status(); });
  if (!time.ok()) return time;
  SKEIN_ASSIGN_OR_RETURN(const auto sums, team.ask(stay, shares(stay.size(), "smaller", 0)));
  SKEIN_RETURN_IF_ERROR(check_sums(sums));
  SKEIN_RETURN_IF_ERROR(team.ask_all(stay, "close smaller").status());
  return time;
}

enum class Mitigation { kRevokeAndShrink, kShrinkWithAbort, kAbortAndForm };

/// From the group that was: false if the library, on some rank, does not.
bool go_on(Team& team, const std::vector<int>& alive, Mitigation mitigation) {
  const std::string lost = std::to_string(alive.size());  // The last rank.
  switch (mitigation) {
    case Mitigation::kRevokeAndShrink:
      return team.ask_all(alive, "revoke all").ok() &&
             team.ask_all(alive, "shrink all healthy rest " + lost).ok();
    case Mitigation::kShrinkWithAbort:
      return team.ask_all(alive, "shrink all lost rest " + lost).ok();
    case Mitigation::kAbortAndForm:
      break;
  }
  return false;
}

absl::Status form_smaller(Team& team, const std::vector<int>& alive, Mitigation mitigation,
                          bool* went_on) {
  *went_on = go_on(team, alive, mitigation);
  if (*went_on) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(team.ask_all(alive, "drop all").status());
  return form(team, alive, "rest");
}

/// How a loss is met.
struct Loss {
  Mitigation mitigation;
  std::chrono::milliseconds patience;
};

/// The last rank dies in an all-reduce. Whoever is left is told, as a coordinator would tell it.
absl::StatusOr<double> lose_one(Team& team, const Loss& loss, bool* went_on) {
  const std::vector<int> all = first_ranks(team.size());
  const std::vector<int> alive = first_ranks(team.size() - 1);
  std::vector<std::string> commands = shares(all.size(), "all", kStepOfLoss);
  commands.back().replace(0, std::strlen("reduce"), "die");
  for (int rank : all) team.rank(rank).send(commands[static_cast<size_t>(rank)]);
  team.rank(all.back()).await_death();
  std::this_thread::sleep_for(loss.patience);
  return timed([&] {
    for (int rank : alive) team.rank(rank).send("stop all");
    for (int rank : alive) {
      if (team.rank(rank).answer().ok()) {
        return absl::InternalError("an all-reduce without one of its members ended");
      }
    }
    return form_smaller(team, alive, loss.mitigation, went_on);
  });
}

/// A whole run with a loss; `healthy` is called before it. `went_on`: from the group that was.
absl::StatusOr<double> run_with_loss(int64_t floats, int ranks, const Loss& loss, bool* went_on,
                                     const std::function<absl::Status(Team&)>& healthy) {
  Team team(floats, ranks);
  if (!team.greeting().starts_with("ready ")) return absl::InternalError(team.greeting());
  const std::vector<int> all = first_ranks(ranks);
  const std::vector<int> alive = first_ranks(ranks - 1);
  SKEIN_RETURN_IF_ERROR(healthy(team));
  for (int64_t step = 0; step < kStepOfLoss; ++step) {
    SKEIN_RETURN_IF_ERROR(train(team, all, "all", step));
  }
  SKEIN_ASSIGN_OR_RETURN(const double time, lose_one(team, loss, went_on));
  std::string weights;
  for (int64_t step = kStepOfLoss; step < kSteps; ++step) {
    SKEIN_RETURN_IF_ERROR(team.ask(alive, shares(alive.size(), "rest", step)).status());
    SKEIN_ASSIGN_OR_RETURN(const auto digests, team.ask_all(alive, "apply"));
    SKEIN_RETURN_IF_ERROR(check_sums(digests));
    weights = digests[0];
  }
  SKEIN_RETURN_IF_ERROR(team.ask_all(alive, "close rest").status());
  if (weights != undisturbed_digest(floats)) {
    return absl::InternalError("the weights are not those of an undisturbed run");
  }
  return time;
}

}  // namespace

Times time_changes(int64_t floats, int ranks, std::chrono::milliseconds patience) {
  Times times;
  const std::vector<int> all = first_ranks(ranks);
  const auto only_form = [&](Team& team) { return form(team, all, "all"); };
  bool unused = false;
  times.abort_and_form = run_with_loss(floats, ranks, {Mitigation::kAbortAndForm, patience},
                                       &unused, [&](Team& team) -> absl::Status {
                                         times.form = timed([&] { return form(team, all, "all"); });
                                         SKEIN_RETURN_IF_ERROR(times.form.status());
                                         times.split = time_split(team, all);
                                         times.shrink = time_shrink(team, all);
                                         return absl::OkStatus();
                                       });
  times.revoke_and_shrink = run_with_loss(floats, ranks, {Mitigation::kRevokeAndShrink, patience},
                                          &times.has_revoked, only_form);
  times.shrink_with_abort = run_with_loss(floats, ranks, {Mitigation::kShrinkWithAbort, patience},
                                          &times.has_shrunk, only_form);
  return times;
}

}  // namespace skein::bench
