#include "plans/coordinator/shard_transfers.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::plans {

Outcome<CoordinatorDecisions> ShardTransfers::on_sent(const ReceiveShard& shard, uint64_t now_us) {
  if (awaits(shard.stage, shard.steps_done)) return Dropped{DropReason::kRepeated};
  shards_.push_back(shard);
  if (shards_.size() > 1) return CoordinatorDecisions{};
  return begin_first(now_us);
}

bool ShardTransfers::awaits(int32_t stage, uint64_t steps_done) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const auto& each) {
    return each.stage == stage && each.steps_done == steps_done;
  });
}

std::optional<DropReason> ShardTransfers::on_layer(int32_t stage, uint64_t steps_done,
                                                   uint64_t now_us) {
  if (!is_received(stage, steps_done)) return DropReason::kUnexpected;
  if (layers_there_ == shards_.front().layers.size()) return DropReason::kRepeated;
  ++layers_there_;
  heard_us_ = now_us;
  return std::nullopt;
}

Outcome<CoordinatorDecisions> ShardTransfers::on_ended(int32_t stage, uint64_t steps_done,
                                                       uint64_t now_us) {
  if (!is_received(stage, steps_done)) return Dropped{DropReason::kUnexpected};
  shards_.pop_front();
  if (shards_.empty()) return CoordinatorDecisions{};
  return begin_first(now_us);
}

CoordinatorDecisions ShardTransfers::on_failed(int32_t stage, uint64_t steps_done,
                                               uint64_t now_us) {
  if (!is_received(stage, steps_done)) {
    std::erase_if(shards_, [&](const auto& each) {
      return each.stage == stage && each.steps_done == steps_done;
    });
    return {};
  }
  CoordinatorDecisions decisions = {AbandonShard{stage, steps_done}};
  append(decisions, on_ended(stage, steps_done, now_us).decisions());
  return decisions;
}

CoordinatorDecisions ShardTransfers::discard(uint64_t steps_done, uint64_t now_us) {
  for (ReceiveShard& each : shards_) {
    if (each.steps_done == steps_done) each.is_discarded = true;
  }
  if (shards_.empty() || shards_.front().steps_done != steps_done) return {};
  return on_failed(shards_.front().stage, steps_done, now_us);
}

const ReceiveShard* ShardTransfers::overdue(uint64_t now_us) const {
  // Once all layers are there, it is the disk that is waited for.
  const bool awaits_layer = !shards_.empty() && layers_there_ < shards_.front().layers.size();
  if (!awaits_layer || static_cast<double>(now_us) < static_cast<double>(heard_us_) + patience_us_)
    return nullptr;
  return &shards_.front();
}

void ShardTransfers::end_generation() {
  shards_.clear();
  told_.clear();
}

bool ShardTransfers::is_received(int32_t stage, uint64_t steps_done) const {
  return !shards_.empty() && shards_.front().stage == stage &&
         shards_.front().steps_done == steps_done;
}

CoordinatorDecisions ShardTransfers::begin_first(uint64_t now_us) {
  layers_there_ = 0;
  heard_us_ = now_us;
  return {shards_.front()};
}

void ShardTransfers::check_invariants() const {
  SKEIN_CHECK(shards_.empty() || layers_there_ <= shards_.front().layers.size()) << layers_there_;
  for (size_t i = 0; i < shards_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      SKEIN_CHECK(shards_[i].stage != shards_[j].stage ||
                  shards_[i].steps_done != shards_[j].steps_done)
          << "stage " << shards_[i].stage << " after " << shards_[i].steps_done << " steps";
    }
  }
}

}  // namespace skein::plans
