#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "plans/sync/components.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/sdpipe_window.hpp"

namespace skein::plans {

struct SdpipeOptions {
  uint64_t period =
      10;  // P, >= 1: all pipeline replicas are connected every P * N updates of a stage.
  WindowOptions window;
  std::optional<double> decay;  // Weights by staleness; none: the paper's, equal ones.
  bool pairs = false;           // Those who came within the window meet in pairs, not all together.
  bool pairs_connect = true;    // Pairs count as edges of the graph.
  bool holds_ignore_window = false;  // A hold that is connected does not wait for its window.
  bool holds_in_turn = true;         // Stages hold in the order in which they came to need it.
};

/// What the artefact does with so many pipeline replicas, so that the paper's figures can be
/// simulated. Beyond 8 pipeline replicas it forms pairs and forgets them, so holds wait for
/// everybody.
SdpipeOptions sdpipe_artefact(uint32_t pipelines, uint64_t period);

/// SDPipe: at each stage, who is ready within a window of the first one averages weights, whoever
/// it is; alone, one goes on alone. Source: Miao et al., PVLDB 16(9), 2023, and its artefact.
///
/// Updates of a stage are counted; after every P * N of them its pipeline replicas must be
/// connected by the groups since they were last. If they are not, the next group is held, window or
/// not, until its members connect the rest: it waits for those without an edge, not for everybody.
/// One stage at a time may hold, so that pipeline replicas cannot wait for each other in a circle:
/// at all other stages a window ends every wait.
///
/// Differs: N is the number of pipeline replicas present, at any time. A death leaves its groups,
/// and ends the hold of which it was the only member; a hold waits for nobody who has left. What a
/// pipeline replica connected before it left stays connected; one that comes is connected to
/// nobody. Differs: the count starts anew with a hold's own group. P = 1 then is all-reduce, as the
/// paper says; but with several stages, not while another one holds. Differs: a hold that is
/// connected still waits out its window; stages hold in turn; windows are scaled to the step.
/// Options bring back the artefact's forms. Differs: no epochs with a common stop; averages of the
/// optimizer's state are not decided here. Cost: O(S + log N) a signal, O(N) a hold.
class SdpipePolicy final : public PeerPolicy {
 public:
  SdpipePolicy(PipelineLayout layout, SdpipeOptions options);

 private:
  struct Stage {
    std::vector<ReplicaId> ready;  // In the order of arrival.
    uint64_t deadline_us = 0;      // If any is ready.
    bool holds = false;
    std::set<uint32_t> reached;  // holds: components that have a ready pipeline replica.
    uint64_t updates = 0;        // Since it came to need a connection last.
    bool needs_connection = false;
    Components components;
  };

  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_free(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_due(uint64_t now_us, Starts& starts) override;
  std::optional<uint64_t> wake_us() const override;

  void begin_gathering(uint32_t stage, ReplicaId first, uint64_t now_us);
  bool is_connected(const Stage& stage) const;
  bool is_due(const Stage& stage, uint64_t now_us) const;
  void release_if_due(uint32_t stage, uint64_t now_us, Starts& starts);
  void start_group(std::span<const ReplicaId> members, uint64_t now_us, Starts& starts);
  void end_hold(Stage& stage);
  void count_updates(uint32_t stage, uint64_t count);
  void reach_anew(Stage& stage);

  SdpipeOptions options_;
  std::vector<Stage> stages_;
  std::vector<AdaptiveWindow> windows_;  // [replicas]
  std::vector<uint64_t> went_on_us_;     // [replicas] when their step began; 0: not known.
  bool is_held_ = false;                 // By some stage.
  std::deque<uint32_t> in_turn_;         // Stages that need a connection.
};

}  // namespace skein::plans
