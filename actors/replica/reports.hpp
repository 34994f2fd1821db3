#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/coordinator/run_observer.hpp"
#include "actors/messages.hpp"
#include "net/control/control_link.hpp"
#include "net/control/envelope.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::actors {

/// What a Replica tells the coordinator. Owned by one actor; touched only from its handlers.
class Reports {
 public:
  Reports(std::shared_ptr<net::ControlLink> link, const net::EnvelopeHead& head)
      : link_(std::move(link)), head_(head) {}

  void ready(const plans::ReadyReport& report) const;
  void reduced(plans::ReplicaId replica, uint64_t step, double norm_squared) const;
  void validated(plans::ReplicaId replica, uint64_t step, double loss_sum,
                 uint64_t loss_tokens) const;
  void averaged(plans::ReplicaId replica, uint64_t number, bool ok) const;
  void shard_saved(const ShardWritten& written) const;
  /// Times of the coordinator's clock.
  void timings(plans::ReplicaId replica, uint64_t step, uint64_t staleness,
               const std::vector<SliceReport>& slices) const;

 private:
  template <class Fill>
  void send(Fill fill) const {
    link_->send(net::make_envelope(head_, fill));
  }

  const std::shared_ptr<net::ControlLink> link_;
  const net::EnvelopeHead head_;
};

}  // namespace skein::actors
