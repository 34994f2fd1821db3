#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "net/codec/bounds.hpp"
#include "net/codec/envelope.hpp"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/plan/plan_ranks.hpp"

namespace skein::net {

/// Draws messages whose every field is within its bounds, often at one of their ends. Lists have
/// one to three elements, so that there is always one to look at.
class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : rng_(seed) {}

  /// A body of the `kind`-th alternative of ControlBody.
  ControlBody body(size_t kind) {
    return body_of(kind, std::make_index_sequence<std::variant_size_v<ControlBody>>());
  }
  EnvelopeHead head() {
    return {count(kGenerationsMax),         count(kTermsMax), below(plans::kWorkerIdMax + 1),
            below(plans::kWorkerIdMax + 1), rng_.bits(),      rng_.bits()};
  }

 private:
  template <size_t... I>
  ControlBody body_of(size_t kind, std::index_sequence<I...>) {
    ControlBody made;
    ((I == kind ? fill(made.emplace<I>()) : void()), ...);
    return made;
  }

  /// 0..max.
  uint64_t count(uint64_t max) {
    const uint64_t choice = rng_.below(4);
    return choice == 0 ? 0 : choice == 1 ? max : rng_.below(max + 1);
  }
  uint32_t below(uint64_t end) { return static_cast<uint32_t>(count(end - 1)); }
  int64_t from_one(uint64_t max) { return static_cast<int64_t>(1 + count(max - 1)); }
  bool flag() { return rng_.below(2) == 1; }
  double real(double min, double max) {
    const uint64_t choice = rng_.below(4);
    return choice == 0 ? min : choice == 1 ? max : min + (max - min) * rng_.uniform();
  }
  double norm() { return real(0, 1e30); }
  std::string text(size_t max, const std::vector<std::string>& pieces) {
    if (rng_.below(8) == 0) return std::string(max, 'x');
    std::string made;
    for (uint64_t i = rng_.below(6); i > 0; --i) made += pieces[rng_.below(pieces.size())];
    return made;
  }
  std::string line(size_t max = kNameBytesMax) {
    return text(max, {"wte", "0F3", "/", ".", " ", "caf\u00e9", "\u540d", "\U0001F9A2"});
  }
  size_t elements() { return 1 + rng_.below(3); }
  template <class Item>
  void fill_list(std::vector<Item>& list) {
    list.resize(elements());
    for (Item& item : list) fill(item);
  }

  void fill(plans::WorkerId& to) { to.value = 1 + below(plans::kWorkerIdMax); }
  plans::WorkerId worker() {
    plans::WorkerId made;
    fill(made);
    return made;
  }
  plans::WorkerId worker_or_none() { return {below(plans::kWorkerIdMax + 1)}; }
  plans::ReplicaId replica() { return {below(kReplicasMax)}; }
  int32_t stage() { return static_cast<int32_t>(below(kStagesMax)); }
  plans::SampleClaim samples() { return {count(kSamplesMax), count(kSamplesMax)}; }

  // Membership.
  void fill(plans::JoinRequest& to) {
    to = {line(),           below(1ULL << 32),      line(), line(),     real(kSpeedMin, kSpeedMax),
          worker_or_none(), count(kGenerationsMax), line(), rng_.bits()};
  }
  void fill(Joined& to) {
    to = {worker(),
          line(),
          text(kJobConfigBytesMax, {"[model]\n", "\tlayers = 2\r\n"}),
          line(kPathBytesMax),
          line(),
          rng_.bits(),
          line()};
  }
  void fill(Refused& to) { to = {line(kReasonBytesMax), line()}; }
  void fill(Heartbeat& to) {
    to = {{count(kStepsMax), line(), count(kTimeUsMax), flag(), false, line(), {}},
          count(kTimeUsMax)};
    to.activity.awaits_device = !to.activity.works && flag();
    for (uint64_t& each : to.activity.dropped.counts()) each = count(kEventsMax);
  }
  void fill(HeartbeatAck& to) { to = {count(kTimeUsMax), count(kTimeUsMax)}; }
  void fill(Failed& to) { to = {line(kReasonBytesMax), flag(), flag()}; }
  void fill(CheckpointUnreadable& to) { to = {line(kReasonBytesMax)}; }
  void fill(PeerFailure& to) { to = {line(kReasonBytesMax), worker_or_none(), flag()}; }
  void fill(Leave& to) { to.reason = line(kReasonBytesMax); }
  void fill(DrainRequest& to) { fill(to.worker); }
  void fill(Stop& to) {
    to.reason = line(kReasonBytesMax);
    to.keeps_state = flag();
  }
  void fill(Emulate& to) { to = {real(0, 1), worker_or_none(), real(0, 86'400)}; }

  // Plans.
  void fill(Peer& to) { to = {worker(), line()}; }
  void fill(Quiesce& to) { to = {count(kStepsMax), norm(), count(kGenerationsMax)}; }
  void fill(plans::InventoryItem& to) {
    const auto end = from_one(kLayersMax);
    to = {count(kStepsMax),
          {static_cast<int64_t>(rng_.below(static_cast<uint64_t>(end))), end},
          count(kGenerationsMax)};
  }
  void fill(Quiesced& to) { fill_list(to.state_inventory); }
  void fill(plans::LayerMove& to) { to = {below(kLayersMax), worker(), worker()}; }
  void fill(plans::Plan& to) {
    to.generation = count(kGenerationsMax);
    to.microbatch_count = static_cast<int64_t>(elements());
    to.microbatch_rows = 4;
    to.recompute = flag();
    const auto stages = static_cast<int32_t>(elements());
    for (int32_t s = 0; s < stages; ++s) {
      plans::StagePlan& stage_plan = to.stages.emplace_back();
      stage_plan.layers = {s, s + 1};
      const auto replicas = static_cast<int64_t>(elements());
      for (int64_t r = 0; r < replicas; ++r) {
        stage_plan.replicas.push_back({{}, worker(), plans::even_rows(4, r, replicas), s});
      }
    }
    plans::number_replicas(to.stages);
    to.groups = plans::reduction_groups(to.stages, flag());
    SKEIN_CHECK(plans::set_schedule(to, plans::ScheduleKind::k1F1B).ok()) << "a plain schedule";
    to.mode = flag() ? plans::kLocalMode : plans::kSynchronousMode;
  }
  void fill(plans::StagePart& to) {
    to.stage = stage();
    const auto end = from_one(kLayersMax);
    to.layers = {static_cast<int64_t>(rng_.below(static_cast<uint64_t>(end))), end};
    to.first = replica();
    to.replica_count = static_cast<int64_t>(count(kReplicasMax));
    to.replicas.resize(elements());
    for (plans::ReplicaPlan& each : to.replicas) {
      each = {replica(),
              worker(),
              {static_cast<int64_t>(count(kRowsMax)), static_cast<int64_t>(count(kRowsMax))},
              static_cast<int32_t>(count(kReplicasMax))};
    }
    for (std::vector<uint64_t>* ends : {&to.ends.forward, &to.ends.backward}) {
      ends->resize(elements());
      for (uint64_t& end : *ends) end = count(plans::kEndMax);
    }
    to.ends.last = count(plans::kEndMax);
  }
  void fill(plans::GroupPart& to) {
    to.id.value = static_cast<uint32_t>(count(kStagesMax));
    to.scope = flag() ? plans::GroupScope::kTied : plans::GroupScope::kStage;
    to.member = replica();
    to.rank = static_cast<uint32_t>(below(kReplicasMax));
    to.rank_count = static_cast<uint32_t>(count(kReplicasMax));
    for (size_t i = elements(); i > 0; --i) {
      to.partners[static_cast<uint32_t>(below(kReplicasMax))] = worker();
    }
  }
  void fill(plans::DeviceGroupPart& to) {
    to.id.value = static_cast<uint32_t>(count(2 * kStagesMax));
    to.use = static_cast<plans::DeviceUse>(below(plans::kDeviceUses));
    to.front = stage();
    if (flag()) to.rank = static_cast<uint32_t>(below(kReplicasMax));
    to.rank_count = static_cast<uint32_t>(count(kReplicasMax));
    for (size_t i = elements(); i > 0; --i) {
      to.neighbours[worker()] = static_cast<uint32_t>(below(kReplicasMax));
    }
    to.members.resize(elements());
    for (plans::WorkerId& member : to.members) member = worker();
  }
  void fill(plans::PlanPart& to) {
    plans::Plan whole;
    fill(whole);
    to.generation = count(kGenerationsMax);
    to.mode = line();
    to.microbatch_count = static_cast<int64_t>(count(kMicrobatchesMax));
    to.microbatch_rows = static_cast<int64_t>(count(kRowsMax));
    to.recompute = flag();
    to.stage_count = static_cast<int32_t>(count(kStagesMax));
    to.worker_max = static_cast<uint32_t>(count(plans::kWorkerIdMax));
    fill_list(to.stages);
    fill_list(to.groups);
    to.actions = whole.actions.front();
    to.device_leader = worker_or_none();
    fill_list(to.device_groups);
  }
  void fill(Assign& to) {
    fill(to.plan);
    fill_list(to.peers);
    to.restore.first_step = count(kStepsMax);
    to.restore.from_checkpoint = flag();
    fill_list(to.restore.moves);
    to.load_path = line(kPathBytesMax);
    to.data_bytes = count(kBytesMax);
    to.data_digest = rng_.bits();
    for (size_t i = elements(); i > 0; --i) to.snapshot_peers[stage()] = worker();
    to.state_generation = count(kGenerationsMax);
    to.config_digest = rng_.bits();
  }
  void fill(Prepared& to) { to = {{count(plans::kTurnPositionMax), flag()}}; }
  void fill(LayersWanted&) {}
  void fill(RendezvousEntry& to) {
    to.key = line(kKeyBytesMax);
    to.value.resize(rng_.below(100));
    for (char& byte : to.value) byte = static_cast<char>(rng_.bits());
    to.receivers.resize(elements());
    for (plans::WorkerId& receiver : to.receivers) receiver = worker();
  }
  void fill(Start& to) { to = {flag(), flag(), flag(), flag(), count(plans::kTurnPositionMax)}; }
  void fill(SnapshotKept& to) { to = {stage(), count(kStepsMax)}; }

  // Steps.
  void fill(plans::ReadyReport& to) {
    to.replica = replica();
    to.step = count(kStepsMax);
    to.loss_sum = real(-1e30, 1e30);
    to.loss_tokens = count(kSamplesMax);
    to.needs_groups = flag();
    to.norm_squared = norm();
    to.busy_us = count(kTimeUsMax);
    to.step_us = count(kTimeUsMax);
    to.stash_peak = below(kMicrobatchesMax + 1);
    to.snapshot_us = count(kTimeUsMax);
    to.weight_delay = below(kMicrobatchesMax + 1);
    to.device_wait_us = count(kTimeUsMax);
    to.turns = {count(plans::kTurnPositionMax), flag()};
  }
  void fill(plans::TokenOrder& to) {
    to.kind = static_cast<plans::TokenOrder::Kind>(below(3));
    to.replica = replica();
    to.step = count(kStepsMax);
    to.token = static_cast<int32_t>(below(kMicrobatchesMax));
    to.others.resize(elements());
    for (plans::ReplicaId& other : to.others) other = replica();
  }
  void fill(TokenReport& to) {
    to = {replica(), count(kStepsMax), static_cast<int32_t>(below(kMicrobatchesMax)),
          static_cast<plans::TokenEvent>(below(3))};
  }
  void fill(plans::TextRequest& to) {
    to = {line(kPathBytesMax), rng_.bits(), from_one(kSamplesMax), from_one(plans::kTextStepMax)};
  }
  void fill(plans::TextRoom& to) {
    to.room.free_bytes = static_cast<int64_t>(count(kBytesMax));
    to.room.fixed_bytes = static_cast<int64_t>(count(kBytesMax));
    to.room.layer_bytes.resize(elements());
    uint64_t sum = 0;
    for (int64_t& each : to.room.layer_bytes) {
      each = static_cast<int64_t>(count(kLayerBytesMax));
      sum += static_cast<uint64_t>(each);
    }
    to.room.shared_bytes = static_cast<int64_t>(count(sum));
    to.is_host_memory = flag();
  }
  void fill(plans::TextLayers& to) {
    const auto end = from_one(kLayersMax);
    to = {{static_cast<int64_t>(rng_.below(static_cast<uint64_t>(end))), end},
          worker_or_none(),
          worker_or_none(),
          line(),
          rng_.bits()};
  }
  void fill(plans::TextReady&) {}
  void fill(plans::TextStep& to) {
    to = {count(kStepsMax), static_cast<int64_t>(count(kSamplesMax)), from_one(plans::kTextStepMax),
          std::vector<int32_t>(elements())};
    for (int32_t& token : to.tokens) token = static_cast<int32_t>(count(kTokenMax));
  }
  void fill(EarlySignal& to) { to = {replica(), count(kStepsMax)}; }
  void fill(Reduced& to) { to = {replica(), count(kStepsMax), norm()}; }
  void fill(plans::CommitOrder& to) {
    to = {count(kStepsMax), norm(), flag(),
          flag(),           flag(), flag(),
          count(kStepsMax), flag(), count(plans::kTurnPositionMax)};
  }
  void fill(Validated& to) {
    to = {replica(), count(kStepsMax), real(-1e30, 1e30), count(kSamplesMax)};
  }
  void fill(plans::SavedFile& to) {
    to = {flag() ? "model.safetensors" : "stage-1/optimizer", count(kBytesMax), below(1ULL << 32),
          std::vector<std::string>(elements(), line())};
  }
  void fill(ShardSaved& to) {
    to.stage = stage();
    to.step = count(kStepsMax);
    fill_list(to.files);
    to.error = line(kReasonBytesMax);
  }
  void fill(ShardSent& to) { to = {stage(), count(kStepsMax)}; }
  void fill(Slice& to) {
    to = {line(), static_cast<uint8_t>(rng_.below(kTracks)), count(kTimeUsMax), count(kTimeUsMax),
          static_cast<int32_t>(below(kMicrobatchesMax + 1)) - 1};
  }
  void fill(Timings& to) {
    to.replica = replica();
    to.step = count(kStepsMax);
    fill_list(to.slices);
    to.staleness = count(kStepsMax);
    to.weight_delay = below(kMicrobatchesMax + 1);
  }

  // Local updates.
  void fill(Claim& to) {
    to = {count(kStepsMax), samples(), flag(), count(plans::kTurnPositionMax)};
  }
  void fill(plans::UpdateOrder& to) {
    to = {count(kStepsMax), norm(), std::nullopt, flag(), count(plans::kTurnPositionMax)};
    if (flag()) to.next = plans::SampleClaim{count(kSamplesMax), 1 + rng_.below(kSamplesMax)};
  }
  void fill(plans::GroupMember& to) {
    to.replica = replica();
    to.weight = real(-kWeightMax, kWeightMax);
  }
  void fill(Average& to) {
    to.replica = replica();
    to.number = count(kStepsMax);
    fill_list(to.members);
    to.is_nonblocking = flag();
    to.is_global = flag();
    to.has_server = flag();
    to.has_group_server = flag();
    to.is_closing = flag();
    to.steps_done = count(kStepsMax);
    to.staleness = count(kStepsMax);
  }
  void fill(Averaged& to) { to = {replica(), count(kStepsMax), flag()}; }
  void fill(AbortGroup& to) { to = {replica(), count(kStepsMax)}; }

  // Profiles.
  void fill(ProfileRequest& to) {
    to.rows.resize(elements());
    for (int64_t& rows : to.rows) rows = from_one(kRowsMax);
    fill_list(to.peers);
  }
  plans::LayerTimes times() { return {real(0, 1e6), real(0, 1e6), real(0, 1e6)}; }
  void fill(plans::MeasuredWorker& to) {
    plans::Profile& profile = to.profile;
    profile.source = "measured";
    profile.device = line();
    for (size_t i = elements(); i > 0; --i) {
      const int64_t before = profile.rows.empty() ? 0 : profile.rows.back();
      profile.rows.push_back(before + from_one(100));
    }
    for (size_t l = elements(); l > 0; --l) {
      plans::LayerProfile& layer = profile.layers.emplace_back();
      layer.name = line();
      for (size_t i = 0; i < profile.rows.size(); ++i) layer.at.push_back(times());
      layer.activation_row_bytes = static_cast<int64_t>(count(kBytesMax));
      layer.stash_row_bytes = static_cast<int64_t>(count(kBytesMax));
      layer.parameter_bytes = static_cast<int64_t>(count(kBytesMax));
    }
    profile.state_factor = real(0, kFactorMax);
    profile.activation_factor = real(0.1, kFactorMax);
    profile.gradient_factor = real(0, kFactorMax);
    profile.update_us_per_byte = real(0, 10);
    profile.tied_bytes = 0;
    to.memory_bytes = static_cast<int64_t>(count(kBytesMax));
    to.is_device_memory = flag();
    to.memory_bytes_max = static_cast<int64_t>(count(kBytesMax));
    to.rounding_bytes = static_cast<int64_t>(count(kBytesMax));
    for (size_t i = elements(); i > 0; --i) {
      to.links[worker()] = {real(1, kBytesPerSecondMax), real(0, 1e9)};
    }
  }

  // Status.
  void fill(StatusRequest&) {}
  void fill(WorkerStatus& to) {
    to = {worker(),
          line(),
          below(1ULL << 32),
          line(),
          count(kStepsMax),
          count(kTimeUsMax),
          std::vector<std::string>(elements(), line())};
  }
  void fill(Status& to) {
    to.job = line();
    to.state = line();
    to.steps_done = count(kStepsMax);
    to.steps_total = count(kStepsMax);
    to.loss = real(-1e30, 1e30);
    to.tokens_per_second = real(0, kTokensPerSecondMax);
    to.generation = count(kGenerationsMax);
    to.term = count(kTermsMax);
    fill_list(to.workers);
    to.run_folder = line(kPathBytesMax);
  }

  plans::Rng rng_;
};

}  // namespace skein::net
