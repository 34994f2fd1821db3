#include "actors/averaging/weight_exchange.hpp"

#include <algorithm>

#include "net/reduce/adasum_chunks.hpp"
#include "plans/base/check.hpp"
#include "plans/collectives/weight_slices.hpp"

namespace skein::actors {
namespace {

using net::schema::TensorKind;

/// Averages are copied as soon as they arrive; so many may wait for that. 4 MiB of large chunks.
constexpr uint64_t kAveragesMax = 16;

uint32_t index_of(const std::vector<plans::GroupMember>& members, plans::ReplicaId replica) {
  uint32_t index = 0;
  while (index < members.size() && members[index].replica != replica) ++index;
  return index;
}

/// The last chunk of `values`, which are some, filled up with zeros.
std::vector<float> padded_tail(const std::vector<float>& values, size_t chunk_floats) {
  const size_t first = (values.size() - 1) / chunk_floats * chunk_floats;
  std::vector<float> tail(values.begin() + static_cast<ptrdiff_t>(first), values.end());
  tail.resize(chunk_floats);
  return tail;
}

void check_members(const std::vector<plans::GroupMember>& members,
                   const std::map<plans::ReplicaId, std::string>& addresses) {
  SKEIN_CHECK(members.size() >= 2 && members.size() <= kChunkSendersMax)
      << members.size() << " members";
  for (size_t m = 0; m < members.size(); ++m) {
    const plans::ReplicaId replica = members[m].replica;
    SKEIN_CHECK(m == 0 || members[m - 1].replica < replica) << "members do not ascend at " << m;
    SKEIN_CHECK(addresses.contains(replica)) << "no address of " << replica;
  }
}

}  // namespace

/// The group that is under way.
struct WeightExchange::Group {
  /// One of our chunks, by member; ours is not among them.
  using Parts = std::map<uint32_t, net::TensorHandle>;
  using Floats = std::shared_ptr<const std::vector<float>>;

  uint64_t number = 0;
  std::vector<plans::GroupMember> members;
  uint32_t self = 0;  // Index in `members`.
  plans::WeightSlices slices;
  Floats own;                       // All of it; is read until it is sent.
  Floats own_tail;                  // The last chunk of it, padded.
  std::vector<float> result;        // As long as `own`.
  std::map<uint32_t, Parts> parts;  // By chunk.

  std::optional<net::AdasumChunks> adasum;  // None: a mean.
  uint32_t chunks_missing = 0;              // With `adasum`: ours of which parts are missing.
  bool is_reduced = false;                  // With `adasum`: ours are done.

  uint32_t owner_count() const {
    uint32_t count = 0;
    for (uint32_t m = 0; m < members.size(); ++m) count += is_owner(m) ? 1 : 0;
    return count;
  }
  bool is_owner(uint32_t member) const {
    const plans::ChunkRange chunks = slices.owned_by(member);
    return chunks.begin < chunks.end;
  }
};

WeightExchange::WeightExchange(Options options)
    : options_(std::move(options)),
      chunk_floats_(plans::weight_chunk_floats(options_.floats_max)),
      parts_max_(
          plans::weight_parts_max(plans::weight_chunk_count(options_.floats_max, chunk_floats_),
                                  static_cast<uint32_t>(options_.streams.addresses.size()))),
      dots_floats_(static_cast<uint32_t>(net::AdasumChunks::dots_floats(
          options_.tensors.size(), static_cast<uint32_t>(options_.streams.addresses.size())))) {
  // Those of a group that is ending and of the next one: nobody waits for our `begin`.
  options_.streams.open(TensorKind::PART, chunk_floats_, 2 * parts_max_);
  options_.streams.open(TensorKind::AVERAGE, chunk_floats_, kAveragesMax);
  if (dots_floats_ > 0) {
    const auto members = static_cast<uint32_t>(options_.streams.addresses.size());
    options_.streams.open(TensorKind::DOTS, dots_floats_, members);
  }
}

WeightExchange::~WeightExchange() = default;

std::optional<WeightExchange::Done> WeightExchange::begin(
    uint64_t number, const std::vector<plans::GroupMember>& members, std::vector<float> values,
    How how) {
  if (newest_ && number <= *newest_) return std::nullopt;
  check_members(members, options_.streams.addresses);
  const uint32_t self = index_of(members, options_.streams.self);
  const uint64_t chunk_count = plans::weight_chunk_count(values.size(), chunk_floats_);
  SKEIN_CHECK(self < members.size()) << options_.streams.self << " is not in group " << number;
  SKEIN_CHECK(values.size() <= options_.floats_max && chunk_count <= kChunksMax)
      << values.size() << " floats, at most " << options_.floats_max;

  newest_ = number;
  group_ = std::make_unique<Group>(
      Group{.number = number,
            .members = members,
            .self = self,
            .slices = plans::WeightSlices({.chunk_count = static_cast<uint32_t>(chunk_count),
                                           .member_count = static_cast<uint32_t>(members.size()),
                                           .self = self})});
  group_->result.resize(values.size());
  if (how == How::kAdasum) {
    group_->adasum.emplace(net::AdasumChunks::Options{
        options_.tensors, static_cast<uint32_t>(members.size()), chunk_floats_});
    const plans::ChunkRange own = group_->slices.owned_by(self);
    group_->chunks_missing = own.end - own.begin;
    group_->is_reduced = group_->chunks_missing == 0;
  }
  if (!values.empty()) {
    group_->own_tail =
        std::make_shared<const std::vector<float>>(padded_tail(values, chunk_floats_));
  }
  group_->own = std::make_shared<const std::vector<float>>(std::move(values));
  send_parts();
  early_.erase(early_.begin(), early_.lower_bound({number, 0}));
  while (!early_.empty() && early_.begin()->first.first == number) {
    const auto early = early_.extract(early_.begin());
    take({options_.streams.generation, options_.streams.self.value, TensorKind::PART, number,
          early.key().second},
         early.mapped());
  }
  return finish();
}

std::optional<WeightExchange::Done> WeightExchange::on_chunk(const net::TensorKey& key,
                                                             net::TensorHandle chunk) {
  const uint32_t floats = key.kind == TensorKind::DOTS ? dots_floats_ : chunk_floats_;
  if (!options_.streams.fits(key, chunk, floats)) return std::nullopt;
  if (!newest_ || key.step > *newest_) {
    keep_early(key, std::move(chunk));
    return std::nullopt;
  }
  if (!group_ || key.step != group_->number) return std::nullopt;
  take(key, chunk);
  return finish();
}

void WeightExchange::abort(uint64_t number) {
  if (is_over(number)) return;
  newest_ = number;
  group_.reset();
  early_.erase(early_.begin(), early_.upper_bound({number, UINT32_MAX}));
}

/// A peer that is in a group with us knows that our earlier groups are over. So only one number is
/// early at a time, and where there is no room, it is for a higher one.
void WeightExchange::keep_early(const net::TensorKey& key, net::TensorHandle chunk) {
  if (key.kind != TensorKind::PART) return;
  early_.try_emplace({key.step, key.microbatch}, std::move(chunk));
  if (early_.size() > parts_max_) early_.erase(early_.begin());
}

void WeightExchange::take(const net::TensorKey& key, const net::TensorHandle& chunk) {
  using Part = plans::WeightSlices::Part;
  const auto [member, index] = place_of(key);
  if (key.kind == TensorKind::AVERAGE) {
    if (!group_->slices.on_average(member, index)) return;
    keep_average(index, *chunk);
  } else if (key.kind == TensorKind::PART) {
    const Part part = group_->slices.on_part(member, index);
    if (part == Part::kUnfit) return;
    group_->parts[index][member] = chunk;
    if (part == Part::kComplete) on_parts(index);
  } else if (key.kind == TensorKind::DOTS && group_->adasum && !group_->is_reduced &&
             member < group_->members.size() && group_->is_owner(member)) {
    group_->adasum->on_dots(member, *chunk);
    try_reduce();
  }
}

void WeightExchange::on_parts(uint32_t chunk) {
  if (!group_->adasum) {
    add_up(chunk);
    group_->parts.erase(chunk);
    return;
  }
  group_->adasum->add(chunk, parts_of(chunk));
  if (--group_->chunks_missing == 0) say_dots();
}

void WeightExchange::say_dots() {
  auto dots = std::make_shared<std::vector<float>>(group_->adasum->dots());
  group_->adasum->on_dots(group_->self, *dots);
  dots->resize(dots_floats_);  // As of the largest group.
  const auto member_count = static_cast<uint32_t>(group_->members.size());
  for (uint32_t offset = 1; offset < member_count; ++offset) {
    const uint32_t to = (group_->self + offset) % member_count;
    if (group_->is_owner(to)) send(TensorKind::DOTS, to, 0, {dots, *dots});
  }
  try_reduce();
}

/// Once all owners have said their dots, we among them.
void WeightExchange::try_reduce() {
  if (group_->chunks_missing > 0 || group_->adasum->dots_count() < group_->owner_count()) return;
  group_->is_reduced = true;
  const plans::ChunkRange own = group_->slices.owned_by(group_->self);
  for (uint32_t chunk = own.begin; chunk < own.end; ++chunk) add_up(chunk);
  group_->parts.clear();
}

/// The parts that others own; beginning with our successor, so that not all send to the same one.
void WeightExchange::send_parts() {
  const auto member_count = static_cast<uint32_t>(group_->members.size());
  for (uint32_t offset = 1; offset < member_count; ++offset) {
    const uint32_t to = (group_->self + offset) % member_count;
    const plans::ChunkRange chunks = group_->slices.owned_by(to);
    for (uint32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      send(TensorKind::PART, to, chunk, own_part(chunk));
    }
  }
}

/// Our contribution to a chunk.
WeightExchange::Chunk WeightExchange::own_part(uint32_t chunk) const {
  if (chunk + 1 == group_->slices.chunk_count()) return {group_->own_tail, *group_->own_tail};
  const size_t first = size_t{chunk} * chunk_floats_;
  return {group_->own, std::span<const float>(*group_->own).subspan(first, chunk_floats_)};
}

void WeightExchange::keep_average(uint32_t chunk, std::span<const float> average) {
  const auto room = std::span<float>(group_->result).subspan(size_t{chunk} * chunk_floats_);
  std::copy_n(average.begin(), std::min(average.size(), room.size()), room.begin());
}

std::vector<std::span<const float>> WeightExchange::parts_of(uint32_t chunk) const {
  std::vector<std::span<const float>> parts;
  for (uint32_t m = 0; m < group_->members.size(); ++m) {
    parts.push_back(m == group_->self ? own_part(chunk).values : *group_->parts.at(chunk).at(m));
  }
  return parts;
}

std::vector<double> WeightExchange::weights() const {
  std::vector<double> weights;
  for (const plans::GroupMember& each : group_->members) weights.push_back(each.weight);
  return weights;
}

void WeightExchange::add_up(uint32_t chunk) {
  const auto member_count = static_cast<uint32_t>(group_->members.size());
  auto average = std::make_shared<std::vector<float>>(chunk_floats_);
  if (group_->adasum) {
    group_->adasum->reduce(chunk, parts_of(chunk), weights(), *average);
  } else {
    plans::add_weighted(parts_of(chunk), weights(), *average);
  }
  keep_average(chunk, *average);
  for (uint32_t offset = 1; offset < member_count; ++offset) {
    const uint32_t to = (group_->self + offset) % member_count;
    send(TensorKind::AVERAGE, to, chunk, {average, *average});
  }
}

void WeightExchange::send(TensorKind kind, uint32_t to, uint32_t chunk, Chunk content) {
  options_.streams.send(kind, group_->members[to].replica, group_->number, {group_->self, chunk},
                        content.values, std::move(content.owner));
}

std::optional<WeightExchange::Done> WeightExchange::finish() {
  if (!group_->slices.is_done() || (group_->adasum && !group_->is_reduced)) return std::nullopt;
  Done done{group_->number, std::move(group_->result)};
  group_.reset();
  return done;
}

}  // namespace skein::actors
