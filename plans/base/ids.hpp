#pragma once

#include <compare>
#include <cstdint>
#include <ostream>

namespace skein::plans {

/// An identifier that cannot be mixed up with another kind of identifier.
template <class Tag>
struct Id {
  uint32_t value = 0;

  auto operator<=>(const Id&) const = default;
};

template <class Tag>
std::ostream& operator<<(std::ostream& out, Id<Tag> id) {
  return out << Tag::kPrefix << id.value;
}

struct WorkerTag {
  static constexpr const char* kPrefix = "w";
};
struct ReplicaTag {
  static constexpr const char* kPrefix = "r";
};
struct GroupTag {
  static constexpr const char* kPrefix = "g";
};

/// Given by the coordinator when a worker joins, counted from 1; 0 is never a worker.
using WorkerId = Id<WorkerTag>;
/// One more for each process that joins, up to this, and then from 1 again.
inline constexpr uint32_t kWorkerIdMax = 1 << 24;
/// Position of a replica in its plan: stage by stage, from 0.
using ReplicaId = Id<ReplicaTag>;
/// Position of a reduction group in its plan, from 0.
using GroupId = Id<GroupTag>;

}  // namespace skein::plans
