#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plans/collectives/communication_order.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::plans {

/// The most tensors that one end of a link holds at once, whatever the times are: an input from
/// when its first rows are awaited until the action that takes it has ended, an output from when
/// its action is given to the device until the operation behind that of its last rows begins.
///
/// `front`  the link's stage in front, on other workers than the one behind.
/// `own`    a replica of either stage, of the part's worker: which end.
///
/// Transfers of the link run one after the other in the order of `places`, and a send only when its
/// action has ended, so all actions before that in the list have. An action is given to the device
/// when its inputs are there. That bounds how far the list can be behind a transfer that begins,
/// and ahead of it. No other link, and no sum, is counted on to keep anything back.
/// The part is valid.  Cost  O(M * routes * log).
int64_t link_tensors_max(const PlanPart& part, const CommunicationPlaces& places, int32_t front,
                         ReplicaId own);

/// A tensor that passes over a link: where its action stands in the list, and its first and last
/// rows among the link's transfers.
struct PassingTensor {
  bool is_sent = false;
  size_t action = 0;
  size_t first = 0;
  size_t last = 0;
};
/// The most of them that are held at once, as above.  Cost  O(n log n).
int64_t held_max(const std::vector<PassingTensor>& passing);

}  // namespace skein::plans
