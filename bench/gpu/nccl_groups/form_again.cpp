// That forming groups again and again leaves nothing behind.

#include <algorithm>
#include <array>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "bench/gpu/nccl_groups/phases.hpp"
#include "bench/gpu/nccl_groups/team.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

/// Libraries load, and allocators fill, in the first rounds.
constexpr int kWarmUps = 10;
/// What may be left: an allocator's slack.
constexpr int64_t kGrowthMaxKb = 32 << 10;
constexpr int64_t kGrowthMaxGpuMb = 64;

/// What one rank uses: RSS in KiB, threads, descriptors, MiB of the GPU.
using Counts = std::array<int64_t, 4>;

absl::StatusOr<Counts> largest(Team& team, const std::vector<int>& members) {
  SKEIN_ASSIGN_OR_RETURN(const auto answers, team.ask_all(members, "count"));
  Counts counts{};
  for (const std::string& answer : answers) {
    std::istringstream in(answer);
    for (int64_t& count : counts) {
      int64_t own = 0;
      in >> own;
      count = std::max(count, own);
    }
  }
  return counts;
}

/// Even rounds end the group together, odd ones abort it, as after a fault.
absl::Status form_once(Team& team, const std::vector<int>& members, int round) {
  team.rank(0).send("id");
  SKEIN_ASSIGN_OR_RETURN(const std::string id, team.rank(0).answer());
  std::vector<std::string> commands;
  for (int rank : members) {
    commands.push_back(absl::StrCat("form again ", rank, " ", members.size(), " ", id));
  }
  SKEIN_RETURN_IF_ERROR(team.ask(members, commands).status());
  SKEIN_RETURN_IF_ERROR(
      team.ask_all(members, absl::StrCat("reduce again ", round, " 0 1")).status());
  return team.ask_all(members, round % 2 == 0 ? "close again" : "drop again").status();
}

std::string to_text(const Counts& counts) {
  return absl::StrCat(counts[0] >> 10, " MiB, ", counts[1], " threads, ", counts[2],
                      " descriptors, ", counts[3], " MiB of the GPU");
}

}  // namespace

absl::StatusOr<std::string> form_again(int64_t floats, int ranks, int rounds) {
  Team team(floats, ranks);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  Counts before{};
  for (int round = 0; round < kWarmUps + rounds; ++round) {
    if (round == kWarmUps) {
      SKEIN_ASSIGN_OR_RETURN(before, largest(team, members));
    }
    SKEIN_RETURN_IF_ERROR(form_once(team, members, round));
  }
  SKEIN_ASSIGN_OR_RETURN(const Counts after, largest(team, members));
  const std::string text = absl::StrCat(rounds, " times by ", ranks, " ranks; before ",
                                        to_text(before), "; after ", to_text(after));
  const bool has_grown = after[0] > before[0] + kGrowthMaxKb || after[1] > before[1] ||
                         after[2] > before[2] || after[3] > before[3] + kGrowthMaxGpuMb;
  if (has_grown) return absl::InternalError(absl::StrCat(text, ": something is left behind"));
  return text;
}

}  // namespace skein::bench
