// That what `plans::choose_formations` decides can be done: random groups, round after round.

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/gpu/nccl_groups/phases.hpp"
#include "bench/gpu/nccl_groups/team.hpp"
#include "bench/gpu/nccl_groups/work.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/group_formation.hpp"

namespace skein::bench {
namespace {

using Members = std::vector<plans::WorkerId>;

constexpr size_t kGroupsMax = 3;  // That a rank keeps.
constexpr int kKinds = 4;

/// Plays the coordinator; a rank is the worker of its number.
class Changes {
 public:
  Changes(int64_t floats, int ranks)
      : floats_(floats),
        team_(floats, ranks),
        caches_(static_cast<size_t>(ranks), plans::DeviceGroupCache(kGroupsMax)) {}

  absl::Status run(int rounds) {
    for (round_ = 0; round_ < rounds; ++round_) {
      std::vector<Members> wanted(1 + rng_.below(3));
      for (Members& members : wanted) members = draw();
      SKEIN_RETURN_IF_ERROR(form_all(wanted));
      // In the order that all agree on.
      for (uint64_t number : in_use_) SKEIN_RETURN_IF_ERROR(reduce(number));
      SKEIN_RETURN_IF_ERROR(release_all());
    }
    return absl::OkStatus();
  }

  std::string summary() const {
    return absl::StrCat(counts_[0], " kept, ", counts_[1], " shrunk, ", counts_[2], " split, ",
                        counts_[3], " from new ids");
  }

 private:
  Members draw() {
    Members members;
    while (members.size() < 2) {
      members.clear();
      for (uint32_t rank = 0; rank < caches_.size(); ++rank) {
        if (rng_.below(3) > 0) members.push_back(plans::WorkerId{rank});
      }
    }
    return members;
  }

  std::map<plans::WorkerId, plans::GroupOffer> offers() const {
    const bool can_split = team_greeting().find(" split") != std::string::npos;
    const bool can_shrink = team_greeting().find(" shrink") != std::string::npos;
    std::map<plans::WorkerId, plans::GroupOffer> offers;
    for (uint32_t rank = 0; rank < caches_.size(); ++rank) {
      offers[plans::WorkerId{rank}] = {caches_[rank].offer(), can_shrink, can_split};
    }
    return offers;
  }
  const std::string& team_greeting() const { return team_.greeting(); }

  absl::Status form_all(const std::vector<Members>& wanted) {
    const std::vector<plans::Formation> formations = plans::choose_formations(wanted, offers());
    std::set<uint64_t> split;
    std::vector<uint64_t> formed;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const plans::Formation& formation = formations[i];
      ++counts_[static_cast<int>(formation.kind)];
      if (formation.kind == plans::FormationKind::kCached) {
        for (plans::WorkerId member : wanted[i]) cache(member).use(formation.parent);
        in_use_.push_back(formation.parent);
        continue;
      }
      const uint64_t number = ++newest_;
      members_[number] = wanted[i];
      formed.push_back(number);
      if (formation.kind == plans::FormationKind::kShrink) {
        SKEIN_RETURN_IF_ERROR(shrink(number, formation));
      } else if (formation.kind == plans::FormationKind::kNewId) {
        SKEIN_RETURN_IF_ERROR(form(number));
      } else {
        parts_[formation.parent].push_back(number);
        split.insert(formation.parent);
      }
    }
    for (uint64_t parent : split) SKEIN_RETURN_IF_ERROR(split_into_parts(parent));
    // Only now, as making room may give a parent up.
    for (uint64_t number : formed) SKEIN_RETURN_IF_ERROR(keep(number));
    std::sort(in_use_.begin(), in_use_.end());
    return absl::OkStatus();
  }

  absl::Status form(uint64_t number) {
    const std::vector<int> ranks = ranks_of(number);
    team_.rank(ranks[0]).send("id");
    SKEIN_ASSIGN_OR_RETURN(const std::string id, team_.rank(ranks[0]).answer());
    std::vector<std::string> commands;
    for (size_t i = 0; i < ranks.size(); ++i) {
      commands.push_back(absl::StrCat("form ", number, " ", i, " ", ranks.size(), " ", id));
    }
    return team_.ask(ranks, commands).status();
  }

  absl::Status shrink(uint64_t number, const plans::Formation& formation) {
    std::vector<uint32_t> left;
    for (const plans::RankRange& range : formation.left) {
      for (uint32_t rank = range.begin; rank < range.end; ++rank) left.push_back(rank);
    }
    return team_
        .ask_all(ranks_of(number), absl::StrCat("shrink ", formation.parent, " healthy ", number,
                                                " ", absl::StrJoin(left, " ")))
        .status();
  }

  /// The color of a part is its position.
  absl::Status split_into_parts(uint64_t parent) {
    const std::vector<uint64_t> parts = std::move(parts_[parent]);
    parts_.erase(parent);
    std::vector<std::string> commands;
    for (plans::WorkerId member : members_.at(parent)) {
      std::string command = absl::StrCat("split ", parent, " -1 none");
      for (size_t color = 0; color < parts.size(); ++color) {
        const Members& part = members_.at(parts[color]);
        if (std::find(part.begin(), part.end(), member) == part.end()) continue;
        command = absl::StrCat("split ", parent, " ", color, " ", parts[color]);
      }
      commands.push_back(command);
    }
    return team_.ask(ranks_of(parent), commands).status();
  }

  absl::Status keep(uint64_t number) {
    in_use_.push_back(number);
    const Members& members = members_.at(number);
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const plans::WorkerId member = members[rank];
      const auto evicted = cache(member).add(
          {number, static_cast<uint32_t>(rank), static_cast<uint32_t>(members.size()), 0});
      SKEIN_RETURN_IF_ERROR(drop(member, evicted));
    }
    return absl::OkStatus();
  }

  absl::Status release_all() {
    for (uint64_t number : in_use_) {
      for (plans::WorkerId member : members_.at(number)) {
        SKEIN_RETURN_IF_ERROR(drop(member, cache(member).release(number, operations_[number])));
      }
    }
    in_use_.clear();
    return absl::OkStatus();
  }

  absl::Status drop(plans::WorkerId member, const std::vector<uint64_t>& numbers) {
    for (uint64_t number : numbers) {
      SKEIN_RETURN_IF_ERROR(
          team_.ask({static_cast<int>(member.value)}, {absl::StrCat("drop ", number)}).status());
    }
    return absl::OkStatus();
  }

  /// Every member puts in one sample of its own.
  absl::Status reduce(uint64_t number) {
    ++operations_[number];
    std::vector<std::string> commands;
    std::vector<float> expected(static_cast<size_t>(floats_));
    for (plans::WorkerId member : members_.at(number)) {
      commands.push_back(absl::StrCat("reduce ", number, " ", round_, " ", member.value, " 1"));
      add_gradients(round_, member.value, 1, expected);
    }
    SKEIN_ASSIGN_OR_RETURN(const auto digests, team_.ask(ranks_of(number), commands));
    for (const std::string& each : digests) {
      if (each == absl::StrCat(digest(expected))) continue;
      return absl::InternalError(absl::StrCat("a wrong sum in round ", round_));
    }
    return absl::OkStatus();
  }

  std::vector<int> ranks_of(uint64_t number) const {
    std::vector<int> ranks;
    for (plans::WorkerId member : members_.at(number)) {
      ranks.push_back(static_cast<int>(member.value));
    }
    return ranks;
  }
  plans::DeviceGroupCache& cache(plans::WorkerId member) { return caches_[member.value]; }

  const int64_t floats_;
  Team team_;
  plans::Rng rng_{1};
  std::vector<plans::DeviceGroupCache> caches_;  // By rank.
  std::map<uint64_t, Members> members_;          // Those of every group that there was.
  std::map<uint64_t, uint64_t> operations_;
  std::map<uint64_t, std::vector<uint64_t>> parts_;  // By parent, in a round.
  std::vector<uint64_t> in_use_;
  uint64_t newest_ = 0;
  int64_t round_ = 0;
  int counts_[kKinds] = {};
};

}  // namespace

absl::StatusOr<std::string> change_groups(int64_t floats, int ranks, int rounds) {
  Changes changes(floats, ranks);
  SKEIN_RETURN_IF_ERROR(changes.run(rounds));
  return changes.summary();
}

}  // namespace skein::bench
