#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/messages.hpp"
#include "actors/replica/replica.hpp"
#include "actors/worker/prepare_io.hpp"
#include "actors/worker/state_store.hpp"
#include "actors/worker/worker_parts.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device_pool.hpp"
#include "net/codec/plans.hpp"
#include "net/data/data_plane.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// What a worker does between an assignment and being prepared: state comes from other workers and
/// goes to them, models are built and loaded, groups and links are formed. Owned by one actor;
/// touched only from its handlers.
///
///   1 none:       there is no plan
///   2 fetching:   layers are on their way here
///   3 preparing:  the PrepareIo builds and loads models; 2 again if it does not see the checkpoint
///   4 forming:    groups and links are formed
///   5 prepared:   all is ready to run
///   6 failed:     something did that a new plan mends
class PlanPreparation {
 public:
  enum class Step { kNone, kFetching, kPreparing, kForming, kPrepared, kFailed };

  struct Options {
    WorkerParts parts;
    std::shared_ptr<net::DataPlane> plane;
    std::string bind_address;
    FailPointHandle fail_point;
    std::function<void(PrepareRequest)> prepare;  // `on_prepared` follows.
    std::function<void(SendStateRequest)> send_state;
    std::function<void(const GroupIo&)> form_group;                          // `on_formed` follows.
    std::function<void(const StageLinkIo&)> form_link;                       // The same.
    std::function<void(const net::TensorKey&, net::TensorHandle)> on_state;  // On any thread.
    std::function<void()> on_ready;                         // Everything is prepared.
    std::function<void(const absl::Status&)> fail;          // Another plan would not mend it.
    std::function<void(const absl::Status&)> peer_failure;  // A new plan mends it.
    std::function<void(const absl::Status&)> checkpoint_unreadable;  // Another source mends it.
    std::function<void()> want_layers;  // The coordinator sends those of our replicas.
  };
  PlanPreparation(Options options, StateStore& store);

  /// What stays the same in a worker's life.
  struct Host {
    plans::WorkerId self;
    plans::JobSpec job;
    std::shared_ptr<gpu::Device> device;
    Device work;                    // Runs the work of `device`.
    bool reduces_gradients = true;  // In the mode of the plan that begins.
    int32_t passes_in_flight = 1;   // The same.
    std::string run_folder;         // On the coordinator's machine.
    std::string run;                // The run's id.
  };
  /// There is no plan: `end` was called.
  void begin(const Host& host, net::Assign assignment);
  /// A layer has come: a fetched one, or one of a snapshot that is whole if it is returned.
  std::optional<SnapshotTaken> on_layer(const StateArrived& arrived);
  void on_prepared(const PreparedReplicas& result);
  void on_formed(const GroupFormed& formed);
  /// The plan is over, or will never start: the store has then what had come for it. Its groups
  /// and links fail at once. May be called by
  /// `fail`, `peer_failure` and `checkpoint_unreadable`.
  void end();

  Step step() const { return step_; }
  bool has_plan() const { return step_ != Step::kNone; }
  /// Those of the newest plan, also when it is over.
  const plans::PlanPart& plan() const { return assignment_.plan; }
  const std::map<plans::WorkerId, std::string>& addresses() const { return addresses_; }
  uint64_t first_step() const { return assignment_.restore.first_step; }
  const net::Assign& assignment() const { return assignment_; }
  /// The generation in which the last of `steps` steps was committed, if this plan got so far.
  uint64_t generation_of(uint64_t steps) const;
  bool hosts_replicas() const { return !prepared_.empty(); }
  /// What a Replica needs of the plan: prepared, and hosting some. They are then the Replica's.
  void hand_over(ReplicaConfig& to);
  void check_invariants() const;

 private:
  void watch_peers() const;
  std::set<plans::WorkerId> exchange_peers() const;
  void send_layers();
  void fetch_layers();
  void fetch_from_coordinator();
  /// It has the stage's first replica.
  bool takes_snapshots(int32_t stage) const;
  void keep_snapshots();
  void open_stream(net::schema::TensorKind kind, int64_t layer, uint32_t tensors_max,
                   std::optional<plans::WorkerId> sender = std::nullopt);
  void try_prepare();
  void form_groups(const PreparedReplicas& result);
  void form_links(const PreparedReplicas& result);
  std::vector<plans::DeviceGroupPart> links_here() const;
  void try_end();
  void keep_fetched();
  void keep_unstarted();
  void give_up(const std::function<void(const absl::Status&)>& tell, const absl::Status& why);
  bool may_share_devices() const;
  GroupRequest group_request(const net::GradientGroup::Options& options) const;

  const Options options_;
  StateStore& store_;
  Host host_;
  Step step_ = Step::kNone;
  net::Assign assignment_;                            // The newest one.
  std::map<plans::WorkerId, std::string> addresses_;  // Data planes of those it sends to.
  std::shared_ptr<const gpu::TokenData> data_;        // Once it was opened.
  bool is_served_ = false;                       // The coordinator sends the checkpoint's layers.
  std::vector<HeldState> fetched_;               // Until they are in models: others', a layer each.
  std::set<int64_t> awaited_;                    // kFetching: layers that have not come.
  std::vector<PreparedReplica> prepared_;        // kForming, kPrepared, until handed over.
  std::map<plans::GroupId, GroupParts> groups_;  // From kForming on.
  std::map<plans::GroupId, StageLinkParts> links_;  // The same.
  std::set<plans::GroupId> forming_;                // kForming: groups and links, not empty.
  std::set<plans::GroupId> device_groups_;          // Formed ones that use the device's memory.
  std::map<plans::GroupId, std::shared_ptr<gpu::DevicePool>> link_memory_;  // The links' of them.
};

}  // namespace skein::actors
