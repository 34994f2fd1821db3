#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/share/turn_naming.hpp"
#include "plans/simulator/fair_links.hpp"
#include "plans/simulator/gradient_rings.hpp"
#include "plans/simulator/shared_devices.hpp"
#include "plans/simulator/simulator.hpp"
#include "plans/simulator/work_table.hpp"

namespace skein::plans {

/// One job of a simulation: the events of all its workers in order of time. Not thread-safe, used
/// once, by `run_executions`. Events of one instant are handled in a fixed order, and the links are
/// shared anew when that instant is over.
class Execution {
 public:
  /// What it has with the others of the simulation.
  struct Ground {
    FairLinks& links;
    SharedDevices* devices = nullptr;  // Null: no other job uses its devices.
    int32_t number = 0;                // Which one it is of `count`.
    int32_t count = 1;
  };
  /// All arguments are valid and fit each other, and outlive the object. `sharing`: as the job has
  /// it, where devices are shared.
  Execution(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
            const SimulationOptions& options, const Ground& ground,
            const SharingSpec& sharing = {});

  void begin();
  /// When the next event is; infinity if there is none.
  double next_event_us() const;
  /// All events up to now.
  void handle_events(double now_us);
  /// A flow has ended whose tag was `of_tag`.
  void on_flow_end(int32_t of_tag, double now_us);
  /// A device that is shared begins with the piece of work that its worker has asked for.
  void on_granted(int32_t device, double now_us);

  bool has_ended() const {
    return static_cast<int32_t>(result_.step_end_us.size()) == options_.steps;
  }
  /// All steps have ended.
  Simulation take_result();
  /// What there is of it, without means.
  const Simulation& result() const { return result_; }

 private:
  /// In the order in which they are handled within one instant.
  enum class EventKind { kWorkDone, kArrival, kShareStart, kCommit };
  struct Event {
    double time_us = 0;
    EventKind kind = EventKind::kWorkDone;
    int32_t index = 0;  // Worker, delivery, group; 0.
    bool operator>(const Event& other) const;
  };

  struct WorkerState {
    int32_t step = 0;
    size_t next = 0;  // Position in the list of its rank.
    bool is_busy = false;
    bool is_updating = false;
    bool has_worked = false;
    double free_us = 0;  // End of its latest work.
    /// What it has asked its device for, not before `from_us`; with `is_busy`.
    double from_us = 0;
    double work_us = 0;
    int64_t bytes = 0;
    std::vector<size_t> last_backward;  // Positions in its list, ascending.
  };
  /// The inputs of one action.
  struct Input {
    int32_t missing = 0;
    double last_us = 0;
  };
  /// Bytes on their way: rows of an output, or an edge of a ring.
  struct Delivery {
    int32_t group = -1;                     // -1: rows of an output.
    const SimulatedRoute* route = nullptr;  // The way of rows of an output.
    double latency_us = 0;
    SimulatedTransfer transfer;
  };
  /// A connection from a replica to another one: its tensors go one after the other.
  struct Stream {
    bool is_busy = false;
    std::deque<int32_t> waiting;  // Deliveries.
  };
  struct GroupState {
    int32_t edges_left = 0;
    double start_us = 0;  // When the first share began.
    bool has_begun = false;
  };

  void push(double time_us, EventKind kind, int32_t index);
  void handle(const Event& event);

  Input& input(int32_t replica, const Action& action);
  bool takes_input(int32_t replica, const Action& action) const;
  void start_next(int32_t worker, double now_us);
  void ask(int32_t worker, const DevicePieceNeed& need, double from_us, double work_us,
           double now_us);
  void begin_work(int32_t worker, double now_us);
  void start_work(int32_t worker, double start_us);
  void name_turns(double now_us);
  void on_work_done(int32_t worker, double now_us);
  void on_action_done(int32_t worker, const Action& action, double now_us);
  void on_update_done(int32_t worker, double now_us);
  void change_memory(int32_t worker, int64_t delta_bytes, double now_us);

  void send(int32_t replica, const Action& action, const SimulatedRoute& route, double now_us);
  int32_t keep(Delivery delivery);
  void start_flow(int32_t delivery, const LinkSet& links, double bytes, double now_us);
  void start_stream(int32_t delivery, double now_us);
  void on_arrival(int32_t delivery, double now_us);
  void deliver(int32_t replica, const Action& producer, double now_us);

  void start_share(int32_t group, double now_us);
  void on_edge_done(int32_t group, double now_us);
  void on_reduced(int32_t group, double now_us);
  void on_commit(double now_us);

  const ActionList& list_of(int32_t worker) const;

  const Plan& plan_;
  const SimulationOptions& options_;
  const int32_t device_count_;
  const WorkTable table_;
  const Ground ground_;
  TurnNaming turns_;
  bool takes_turns_ = true;
  GradientRings rings_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<WorkerState> workers_;
  std::array<std::vector<Input>, 2> inputs_;  // Inputs of F, then of B and I: [replicas * M].
  std::vector<Delivery> deliveries_;
  std::vector<int32_t> unused_deliveries_;
  std::vector<Stream> streams_;
  std::vector<GroupState> groups_;
  std::vector<GradientRings::ShareStart> share_starts_;
  size_t groups_left_ = 0;
  size_t updates_left_ = 0;
  Simulation result_;
};

/// Runs them side by side until `is_over`, asked between two instants, or until nothing is left to
/// happen. `links` and `devices` are those of all their grounds.
void run_executions(std::span<Execution* const> executions, FairLinks& links,
                    SharedDevices* devices, const std::function<bool()>& is_over);

}  // namespace skein::plans
