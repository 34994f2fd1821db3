#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/membership.hpp"

namespace skein::plans {

/// Which links are measured. The members stand in a ring, those of one host side by side; measured
/// are the links to both neighbours and to those at some 2 log2(n) distances, which are drawn once
/// for a size of the ring. So both ends measure a link or none does, every host with two members
/// has a link inside it, and all links of a few members are measured.
class ProbeRing {
 public:
  explicit ProbeRing(const std::map<WorkerId, Member>& members);

  /// Ascending; the worker is a member.
  std::vector<WorkerId> peers_of(WorkerId worker) const;
  /// Not all links are measured.
  bool is_sample() const { return order_.size() > 1 + 2 * distances_.size(); }
  /// The members and their places are the same.
  bool has_places_of(const ProbeRing& other) const { return order_ == other.order_; }

 private:
  std::vector<WorkerId> order_;
  std::map<WorkerId, size_t> place_of_;
  std::vector<size_t> distances_;
};

}  // namespace skein::plans
