#include "actors/averaging/weight_server.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/collectives/weight_slices.hpp"

namespace skein::actors {

using net::schema::TensorKind;

WeightServer::WeightServer(Options options)
    : options_(std::move(options)),
      chunk_floats_(plans::weight_chunk_floats(options_.floats)),
      chunk_count_(
          static_cast<uint32_t>(plans::weight_chunk_count(options_.floats, chunk_floats_))) {
  for (const auto& [replica, address] : options_.streams.addresses) {
    if (replica == options_.streams.self) self_ = static_cast<uint32_t>(shards_.size());
    shards_.push_back(replica);
  }
  SKEIN_CHECK(!shards_.empty() && shards_[self_] == options_.streams.self)
      << options_.streams.self << " is no replica of the stage";
  own_ = plans::chunks_owned_by(self_, chunk_count_, static_cast<uint32_t>(shards_.size()));
  // A member has one group under way, and the next one when it has pulled.
  early_max_ = 2 * shards_.size() * (own_.end - own_.begin);
  options_.streams.open(TensorKind::PUSH, chunk_floats_, early_max_ + 1);
  options_.streams.open(TensorKind::PULL, chunk_floats_, kPullsMax);
  group_server_.emplace(
      GroupServer::Options{options_.streams, shards_, self_, chunk_floats_, chunk_count_});
}

size_t WeightServer::chunk_size(uint32_t chunk) const {
  return std::min<size_t>(chunk_floats_, options_.floats - size_t{chunk} * chunk_floats_);
}

std::optional<WeightServer::Done> WeightServer::resume(const std::vector<float>& weights) {
  SKEIN_CHECK(weights.size() == options_.floats && !pull_)
      << weights.size() << " floats for a server of " << options_.floats;
  weights_.assign(size_t{own_.end - own_.begin} * chunk_floats_, 0);
  for (uint32_t chunk = own_.begin; chunk < own_.end; ++chunk) {
    std::copy_n(
        weights.begin() + static_cast<ptrdiff_t>(size_t{chunk} * chunk_floats_), chunk_size(chunk),
        weights_.begin() + static_cast<ptrdiff_t>(size_t{chunk - own_.begin} * chunk_floats_));
  }
  is_ready_ = true;
  for (auto each = groups_.begin(); each != groups_.end();) {
    const uint64_t number = each++->first;  // It may be over soon.
    for (uint32_t chunk = own_.begin; chunk < own_.end; ++chunk) try_add_up(number, chunk);
  }
  return finish();
}

std::optional<WeightServer::Done> WeightServer::serve(
    uint64_t number, const std::vector<plans::GroupMember>& members, bool has_group_server) {
  if (newest_ && number <= *newest_) return std::nullopt;  // A repeat.
  newest_ = number;
  const bool is_member = std::any_of(members.begin(), members.end(), [&](const auto& each) {
    return each.replica == options_.streams.self;
  });
  if (has_group_server && is_member) group_server_->begin(number, members);
  if (own_.begin == own_.end) return std::nullopt;
  Group& group = groups_[number];
  group.members = members;
  group.has_server = has_group_server;
  for (uint32_t chunk = own_.begin; chunk < own_.end; ++chunk) group.chunks_left.insert(chunk);
  auto early = early_.extract(number);
  if (early.empty()) return std::nullopt;
  early_count_ -= early.mapped().size();
  for (auto& [place, part] : early.mapped()) {
    on_push(number, place.first, place.second, std::move(part));
  }
  return finish();
}

std::optional<WeightServer::Done> WeightServer::push(uint64_t number,
                                                     const std::vector<float>& update) {
  SKEIN_CHECK(update.size() == options_.floats && !pull_) << update.size() << " floats are pushed";
  pull_ = Pull{number, std::vector<float>(update.size()), std::vector<bool>(chunk_count_),
               chunk_count_};
  for (uint32_t chunk = 0; chunk < chunk_count_; ++chunk) {
    auto part = std::make_shared<std::vector<float>>(chunk_floats_);
    std::copy_n(update.begin() + static_cast<ptrdiff_t>(size_t{chunk} * chunk_floats_),
                chunk_size(chunk), part->begin());
    if (group_server_->serves(number)) {
      push_sum(number, group_server_->push(chunk, std::move(part)));
    } else {
      push_chunk(number, chunk, std::move(part));
    }
  }
  return finish();
}

uint32_t WeightServer::shard_of(uint32_t chunk) const {
  return plans::chunk_owner(chunk, chunk_count_, static_cast<uint32_t>(shards_.size()));
}

void WeightServer::push_sum(uint64_t number, std::optional<GroupServer::Sum> sum) {
  if (sum) push_chunk(number, sum->chunk, std::move(sum->values));
}

void WeightServer::push_chunk(uint64_t number, uint32_t chunk, Floats part) {
  const plans::ReplicaId shard = shards_[shard_of(chunk)];
  if (shard == options_.streams.self) return on_push(number, self_, chunk, std::move(part));
  options_.streams.send(TensorKind::PUSH, shard, number, {self_, chunk}, *part, part);
}

std::optional<WeightServer::Done> WeightServer::on_chunk(const net::TensorKey& key,
                                                         const net::TensorHandle& chunk) {
  if (!options_.streams.fits(key, chunk, chunk_floats_)) return std::nullopt;
  // The sender, by its place among the shards; members are told by the word of the group.
  const auto [sender, number] = place_of(key);
  if (sender >= shards_.size() || sender == self_ || number >= chunk_count_) return std::nullopt;
  if (key.kind == TensorKind::GROUP_PULL) {
    if (group_server_->is_owner(key.step, shards_[sender], number)) keep(key.step, number, *chunk);
    return finish();
  }
  const bool is_push = key.kind == TensorKind::PUSH;
  if (is_push && (number < own_.begin || number >= own_.end)) return std::nullopt;
  auto part = std::make_shared<std::vector<float>>(chunk->begin(), chunk->end());
  if (key.kind == TensorKind::PULL) {
    if (sender == shard_of(number)) on_pull(key.step, number, std::move(part));
    return finish();
  }
  if (key.kind == TensorKind::GROUP_PUSH) {
    push_sum(key.step, group_server_->on_part(key.step, sender, number, std::move(part)));
    return finish();
  }
  const auto group = groups_.find(key.step);
  if (group == groups_.end()) {
    if ((newest_ && key.step <= *newest_) || early_count_ >= early_max_) return std::nullopt;
    if (early_[key.step].emplace(std::pair(sender, number), std::move(part)).second) {
      ++early_count_;
    }
    return std::nullopt;
  }
  on_push(key.step, sender, number, std::move(part));
  return finish();
}

void WeightServer::on_push(uint64_t number, uint32_t sender, uint32_t chunk, Floats part) {
  const auto group = groups_.find(number);
  if (group == groups_.end() || !group->second.chunks_left.contains(chunk)) return;
  const auto& members = group->second.members;
  const auto member = std::find_if(members.begin(), members.end(), [&](const auto& each) {
    return each.replica == shards_[sender];
  });
  if (member == members.end()) return;
  const auto place = static_cast<uint32_t>(member - members.begin());
  const bool may_push =
      !group->second.has_server ||
      place == plans::chunk_owner(chunk, chunk_count_, static_cast<uint32_t>(members.size()));
  if (!may_push) return;
  auto& parts = group->second.parts[chunk];
  parts.emplace(place, std::move(part));
  try_add_up(number, chunk);
}

/// Once all members' updates of a chunk are there, or their group's server has added them up.
void WeightServer::try_add_up(uint64_t number, uint32_t chunk) {
  const auto found = groups_.find(number);
  if (!is_ready_ || found == groups_.end()) return;
  Group& group = found->second;
  const auto there = group.parts.find(chunk);
  const size_t needed = group.has_server ? 1 : group.members.size();
  if (there == group.parts.end() || there->second.size() < needed) return;
  const auto parts = std::move(group.parts.extract(chunk).mapped());
  const auto own =
      std::span<float>(weights_).subspan(size_t{chunk - own_.begin} * chunk_floats_, chunk_floats_);
  for (const auto& [member, part] : parts) {
    const auto weight = group.has_server ? 1 : static_cast<float>(group.members[member].weight);
    for (size_t i = 0; i < own.size(); ++i) own[i] += weight * (*part)[i];
  }
  const auto result = std::make_shared<const std::vector<float>>(own.begin(), own.end());
  std::vector<plans::ReplicaId> pushers;
  for (const auto& [member, part] : parts) pushers.push_back(group.members[member].replica);
  group.chunks_left.erase(chunk);
  if (group.chunks_left.empty()) groups_.erase(number);
  for (plans::ReplicaId each : pushers) {
    if (each == options_.streams.self) {
      on_pull(number, chunk, result);
    } else {
      options_.streams.send(TensorKind::PULL, each, number, {self_, chunk}, *result, result);
    }
  }
}

/// The server's weights, for us, or for the group that we have pushed for.
void WeightServer::on_pull(uint64_t number, uint32_t chunk, const Floats& weights) {
  if (!keep(number, chunk, *weights)) return;
  if (group_server_->serves(number)) group_server_->hand_on(chunk, weights);
}

/// False: it is late, or repeated.
bool WeightServer::keep(uint64_t number, uint32_t chunk, std::span<const float> weights) {
  if (!pull_ || pull_->number != number || pull_->has_chunk[chunk]) return false;
  pull_->has_chunk[chunk] = true;
  --pull_->missing;
  std::copy_n(weights.begin(), chunk_size(chunk),
              pull_->weights.begin() + static_cast<ptrdiff_t>(size_t{chunk} * chunk_floats_));
  return true;
}

void WeightServer::abort(uint64_t number) {
  newest_ = std::max(newest_.value_or(number), number);
  groups_.erase(number);
  group_server_->abort(number);
  const auto early = early_.extract(number);
  if (!early.empty()) early_count_ -= early.mapped().size();
  if (pull_ && pull_->number == number) pull_.reset();
}

std::optional<WeightServer::Done> WeightServer::finish() {
  if (!pull_ || pull_->missing > 0) return std::nullopt;
  Done done{pull_->number, std::move(pull_->weights)};
  pull_.reset();
  return done;
}

}  // namespace skein::actors
