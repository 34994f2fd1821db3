#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"
#include "plans/collectives/device_group_cache.hpp"

namespace skein::plans {

/// How a wanted group comes about.
enum class FormationKind {
  kCached,  // It is there.
  kShrink,  // Made from `parent` by those who stay in it; the others need not take part.
  kSplit,   // Made from `parent` by all of its members, whether they stay or not.
  kNewId,   // From nothing: the first member makes an id, which always works.
};

/// What one worker says before groups are formed.
struct GroupOffer {
  std::vector<FormedGroup> groups;  // `DeviceGroupCache::offer`.
  bool can_shrink = false;          // Its library has the function.
  bool can_split = false;
  bool can_revoke = false;
  bool operator==(const GroupOffer&) const = default;
};

/// Ranks [begin, end).
struct RankRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const RankRange&) const = default;
};
/// Each member of a shrunk group is told who leaves: a parent that this takes more ranges of is not
/// shrunk, so that what all are told together grows with their number only.
inline constexpr size_t kLeftRangesMax = 32;

struct Formation {
  FormationKind kind = FormationKind::kNewId;
  uint64_t parent = 0;  // kCached: the group itself. kNewId: 0.
  /// kShrink: who has not revoked the parent does so first.
  bool revokes = false;
  std::vector<RankRange> left = {};  // kShrink: the parent's ranks that leave, ascending.
  bool operator==(const Formation&) const = default;
};

/// Decides how the `wanted` groups come about that are formed in one round, all from the same
/// offers: one decides for everybody.
///
/// Nobody but the members of the wanted groups makes calls. So a split, which is one call of all of
/// its parent's members for all the groups it makes, is for groups that are the whole parent
/// together. A shrink makes one group, and waits for nobody who leaves: a parent is shrunk for one
/// group at most, as a second shrink of it could begin before the first has ended.
///
/// To use or split a parent, all of its members must offer it, in step and not revoked. To shrink
/// it, those who stay must: where one who leaves does not (it is gone) or the members are out of
/// step (some were stopped in an operation), all of them revoke it first, and can or do without it.
/// Of a parent whose members contradict each other nothing is made.
///
/// The smallest parent wins, as it has fewer connections to leave behind; then the newest.
///
/// `wanted`  [groups] members, ascending, >= 2; in the order in which they are to be formed.
/// Returns   [groups] one for each.
/// Cost      O((wanted groups) * (groups of an offer) * members * log), and as much again for each
///           parent that can be split.
std::vector<Formation> choose_formations(const std::vector<std::vector<WorkerId>>& wanted,
                                         const std::map<WorkerId, GroupOffer>& offers);

/// Who forms a group is told so many groups at most that it keeps besides.
inline constexpr size_t kKeptMax = 16;
/// Of the groups that the members of each of `groups` offer, those to keep for later rounds: that
/// all of their members offer, that were not revoked, and that no `formations` are made of. At most
/// kKeptMax, the newest ones.
std::vector<std::vector<uint64_t>> kept_groups(const std::vector<std::vector<WorkerId>>& groups,
                                               const std::map<WorkerId, GroupOffer>& offers,
                                               const std::vector<Formation>& formations);

/// An offer as text, and back: what a worker tells. InvalidArgument.
std::string to_text(const GroupOffer& offer);
absl::StatusOr<GroupOffer> parse_group_offer(const std::string& text);
/// The same of a formation: what it is told.
std::string to_text(const Formation& formation);
absl::StatusOr<Formation> parse_formation(const std::string& text);

}  // namespace skein::plans
