#include "actors/weight_server.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/sync/weight_slices.hpp"

namespace skein::actors {
namespace {

using net::schema::TensorKind;

/// `TensorKey::microbatch` of a chunk: the sender's shard above, the chunk below.
constexpr uint32_t kChunkBits = 20;
constexpr uint32_t kChunkMask = (1u << kChunkBits) - 1;
/// Weights are copied as soon as they arrive; so many chunks may wait for that.
constexpr uint64_t kPullsMax = 16;

}  // namespace

WeightServer::WeightServer(Options options)
    : options_(std::move(options)),
      chunk_floats_(plans::weight_chunk_floats(options_.floats)),
      chunk_count_(
          static_cast<uint32_t>(plans::weight_chunk_count(options_.floats, chunk_floats_))) {
  for (const auto& [replica, address] : options_.addresses) {
    if (replica == options_.self) self_ = static_cast<uint32_t>(shards_.size());
    shards_.push_back(replica);
  }
  SKEIN_CHECK(!shards_.empty() && shards_[self_] == options_.self)
      << options_.self << " is no replica of the stage";
  while (own_begin_ < chunk_count_ && shard_of(own_begin_) != self_) ++own_begin_;
  own_end_ = own_begin_;
  while (own_end_ < chunk_count_ && shard_of(own_end_) == self_) ++own_end_;
  // A member has one group under way, and the next one when it has pulled.
  early_max_ = 2 * shards_.size() * (own_end_ - own_begin_);
  open(TensorKind::PUSH, early_max_ + 1);
  open(TensorKind::PULL, kPullsMax);
}

uint32_t WeightServer::shard_of(uint32_t chunk) const {
  return static_cast<uint32_t>(uint64_t{chunk} * shards_.size() / chunk_count_);
}

size_t WeightServer::chunk_size(uint32_t chunk) const {
  return std::min<size_t>(chunk_floats_, options_.floats - size_t{chunk} * chunk_floats_);
}

void WeightServer::open(TensorKind kind, uint64_t tensors_max) {
  net::TensorInbox::StreamSpec stream;
  stream.generation = options_.generation;
  stream.receiver = options_.self.value;
  stream.kind = kind;
  stream.row_count = 1;
  stream.row_floats = chunk_floats_;
  stream.tensors_max = static_cast<uint32_t>(std::min<uint64_t>(tensors_max, UINT32_MAX));
  stream.on_tensor = options_.on_chunk;
  options_.plane->inbox().open(std::move(stream));
}

std::optional<WeightServer::Done> WeightServer::resume(const std::vector<float>& weights) {
  SKEIN_CHECK(weights.size() == options_.floats && !pull_)
      << weights.size() << " floats for a server of " << options_.floats;
  weights_.assign(size_t{own_end_ - own_begin_} * chunk_floats_, 0);
  for (uint32_t chunk = own_begin_; chunk < own_end_; ++chunk) {
    std::copy_n(
        weights.begin() + static_cast<ptrdiff_t>(size_t{chunk} * chunk_floats_), chunk_size(chunk),
        weights_.begin() + static_cast<ptrdiff_t>(size_t{chunk - own_begin_} * chunk_floats_));
  }
  is_ready_ = true;
  for (auto each = groups_.begin(); each != groups_.end();) {
    const uint64_t number = each++->first;  // It may be over soon.
    for (uint32_t chunk = own_begin_; chunk < own_end_; ++chunk) try_add_up(number, chunk);
  }
  return finish();
}

std::optional<WeightServer::Done> WeightServer::serve(
    uint64_t number, const std::vector<plans::GroupMember>& members) {
  if (newest_ && number <= *newest_) return std::nullopt;  // A repeat.
  newest_ = number;
  if (own_begin_ == own_end_) return std::nullopt;
  Group& group = groups_[number];
  group.members = members;
  for (uint32_t chunk = own_begin_; chunk < own_end_; ++chunk) group.chunks_left.insert(chunk);
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
    const plans::ReplicaId shard = shards_[shard_of(chunk)];
    if (shard == options_.self) {
      on_push(number, self_, chunk, std::move(part));
    } else {
      send(TensorKind::PUSH, shard, number, chunk, std::move(part));
    }
  }
  return finish();
}

std::optional<WeightServer::Done> WeightServer::on_chunk(const net::TensorKey& key,
                                                         const net::TensorHandle& chunk) {
  if (!chunk || chunk->size() != chunk_floats_ || key.generation != options_.generation ||
      key.receiver != options_.self.value) {
    return std::nullopt;
  }
  const uint32_t number = key.microbatch & kChunkMask;
  if (key.kind == TensorKind::PULL) {
    on_pull(key.step, number, *chunk);
    return finish();
  }
  // The sender, by its place among the shards; members are told by the word of the group.
  const uint32_t sender = key.microbatch >> kChunkBits;
  if (sender >= shards_.size() || number < own_begin_ || number >= own_end_) return std::nullopt;
  auto part = std::make_shared<std::vector<float>>(chunk->begin(), chunk->end());
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
  auto& parts = group->second.parts[chunk];
  parts.emplace(static_cast<uint32_t>(member - members.begin()), std::move(part));
  try_add_up(number, chunk);
}

/// Once all members' updates of a chunk are there.
void WeightServer::try_add_up(uint64_t number, uint32_t chunk) {
  const auto found = groups_.find(number);
  if (!is_ready_ || found == groups_.end()) return;
  Group& group = found->second;
  const auto there = group.parts.find(chunk);
  if (there == group.parts.end() || there->second.size() < group.members.size()) return;
  const auto parts = std::move(group.parts.extract(chunk).mapped());
  const auto own =
      std::span<float>(weights_).subspan(size_t{chunk - own_begin_} * chunk_floats_, chunk_floats_);
  for (const auto& [member, part] : parts) {
    const auto weight = static_cast<float>(group.members[member].weight);
    for (size_t i = 0; i < own.size(); ++i) own[i] += weight * (*part)[i];
  }
  const auto result = std::make_shared<const std::vector<float>>(own.begin(), own.end());
  const std::vector<plans::GroupMember> members = group.members;
  group.chunks_left.erase(chunk);
  if (group.chunks_left.empty()) groups_.erase(number);
  for (const plans::GroupMember& each : members) {
    if (each.replica == options_.self) {
      on_pull(number, chunk, *result);
    } else {
      send(TensorKind::PULL, each.replica, number, chunk, result);
    }
  }
}

void WeightServer::on_pull(uint64_t number, uint32_t chunk, std::span<const float> weights) {
  if (!pull_ || pull_->number != number || chunk >= chunk_count_ || pull_->has_chunk[chunk]) return;
  pull_->has_chunk[chunk] = true;
  --pull_->missing;
  std::copy_n(weights.begin(), chunk_size(chunk),
              pull_->weights.begin() + static_cast<ptrdiff_t>(size_t{chunk} * chunk_floats_));
}

void WeightServer::send(TensorKind kind, plans::ReplicaId to, uint64_t number, uint32_t chunk,
                        Floats values) {
  net::DataPlane::Rows rows;
  rows.key = {options_.generation, to.value, kind, number, self_ << kChunkBits | chunk};
  rows.sender = options_.self.value;
  rows.row_count = 1;
  rows.payload = *values;
  rows.owner = std::move(values);
  options_.plane->send(options_.addresses.at(to), std::move(rows));
}

void WeightServer::dissolve(uint64_t number) {
  newest_ = std::max(newest_.value_or(number), number);
  groups_.erase(number);
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
