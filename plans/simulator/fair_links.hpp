#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plans/simulator/keyed_heap.hpp"

namespace skein::plans {

/// The links that a flow takes, each a position in `FairLinks`.
struct LinkSet {
  std::array<int32_t, 3> ids{};
  int32_t count = 0;
  bool operator==(const LinkSet&) const = default;
};

/// Links of one direction and the flows on them, which share them max-min fairly: no flow could be
/// faster without making one slower that is not faster than it (Bertsekas, Gallager: Data Networks,
/// section 6.5.2, progressive filling).
///
/// Not thread-safe. Time never goes back. Start and end cost O(log flows) for a flow that shares no
/// link; `settle` visits only flows connected with those that came or went, and once for all of one
/// instant.
class FairLinks {
 public:
  /// `bytes_per_us`  [links]  capacities, finite, > 0.
  explicit FairLinks(std::vector<double> bytes_per_us);

  /// A flow of `bytes` > 0 over `links`, at least one, all different. `tag` >= 0 names it when it
  /// ends.
  void start(const LinkSet& links, double bytes, int32_t tag, double now_us);
  /// Shares the links anew if flows have come or gone. To be called before time moves on.
  void settle(double now_us);
  /// When the next flow ends; infinity if there is none. Flows that were not settled do not count.
  double next_end_us() const;
  /// Removes that flow and returns its tag.
  int32_t end_next();

  /// Bytes per microsecond of the flow named `tag`; 0 if there is none. For tests: O(flows).
  double rate(int32_t tag) const;

 private:
  struct Flow {
    LinkSet links;
    std::array<int32_t, 3> position{};  // In the list of each of its links.
    double left_bytes = 0;              // At `since_us`.
    double since_us = 0;
    double rate = 0;
    int32_t tag = -1;      // -1: not in use.
    uint64_t visited = 0;  // Round of `settle` that has found it.
    bool is_fixed = false;
  };
  struct Link {
    double bytes_per_us = 0;
    std::vector<int32_t> flows;
    uint64_t visited = 0;
    bool is_dirty = false;
    double free_rate = 0;    // While sharing: what flows without a rate can still have.
    int32_t open_count = 0;  // Those flows.
    int32_t part = 0;        // Position in `part_links_`.
  };

  bool is_alone(const Flow& flow) const;
  void mark(int32_t link);
  void collect(int32_t link);
  void share();
  void fix(int32_t bottleneck, double rate);
  void set_rate(int32_t flow, double rate, double now_us);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> dirty_;
  KeyedHeap ends_;
  uint64_t round_ = 0;
  // The connected part that is shared now; kept to save allocations.
  std::vector<int32_t> part_links_, part_flows_;
  std::vector<double> part_shares_;  // Parallel to `part_links_`: for each of their open flows.
  std::vector<double> part_rates_;   // Parallel to `flows_`.
};

}  // namespace skein::plans
