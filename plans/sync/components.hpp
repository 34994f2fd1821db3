#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skein::plans {

/// Which pipeline replicas the groups so far have connected: a union-find in which pipeline
/// replicas come and go. What a pipeline replica that leaves has connected stays connected, as what
/// it knew has reached the others; one that comes is connected to nobody. Cost: near O(1)
/// amortised, but `reset`, which is O(pipeline replicas).
class Components {
 public:
  /// `present` [pipeline replicas]; each is a component by itself.
  explicit Components(std::vector<bool> present);

  /// Components that have a pipeline replica.
  uint32_t count() const { return count_; }
  /// Names the component of a present pipeline replica; valid until the next change.
  uint32_t find(uint32_t pipeline) const;
  void connect(std::span<const uint32_t> pipelines);
  void leave(uint32_t pipeline);
  void join(uint32_t pipeline);
  /// Each present pipeline replica is a component by itself again.
  void reset();

 private:
  uint32_t root(uint32_t node) const;
  void compact();

  std::vector<bool> present_;
  std::vector<uint32_t>
      node_of_;  // [pipeline replicas]; a pipeline replica that comes again gets a new node.
  mutable std::vector<uint32_t> parent_;  // [nodes]; paths are halved by looking.
  std::vector<uint32_t> weight_;          // [nodes], of roots: present pipeline replicas.
  uint32_t count_ = 0;
};

}  // namespace skein::plans
