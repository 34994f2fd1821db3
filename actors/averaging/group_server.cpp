#include "actors/averaging/group_server.hpp"

#include <algorithm>
#include <span>

#include "plans/base/check.hpp"
#include "plans/collectives/weight_slices.hpp"

namespace skein::actors {

using net::schema::TensorKind;

GroupServer::GroupServer(Options options)
    : options_(std::move(options)),
      // Of k members each sends us its chunks of C / k, rounded up; and they may be a group ahead.
      early_max_(2 * (options_.chunk_count + options_.stage_replicas.size())) {
  options_.streams.open(TensorKind::GROUP_PUSH, options_.chunk_floats, early_max_ + 1);
  options_.streams.open(TensorKind::GROUP_PULL, options_.chunk_floats, kPullsMax);
}

uint32_t GroupServer::owner_of(uint32_t chunk) const {
  return plans::chunk_owner(chunk, options_.chunk_count,
                            static_cast<uint32_t>(group_->members.size()));
}

void GroupServer::begin(uint64_t number, const std::vector<plans::GroupMember>& members) {
  newest_ = number;
  group_.emplace();
  group_->number = number;
  group_->members = members;
  const auto self = std::find_if(members.begin(), members.end(), [&](const auto& each) {
    return each.replica == options_.streams.self;
  });
  SKEIN_CHECK(self != members.end()) << "group " << number << " is not ours";
  group_->self = static_cast<uint32_t>(self - members.begin());
  // Nothing is awaited any more of the groups before it.
  while (!early_.empty() && early_.begin()->first <= number) {
    auto early = early_.extract(early_.begin());
    early_count_ -= early.mapped().size();
    if (early.key() < number) continue;
    for (auto& [place, part] : early.mapped()) {
      const auto sum = on_part(number, place.first, place.second, std::move(part));
      SKEIN_CHECK(!sum) << "group " << number << " has begun without us";
    }
  }
}

std::optional<GroupServer::Sum> GroupServer::push(uint32_t chunk, Floats part) {
  const uint32_t owner = owner_of(chunk);
  if (owner == group_->self) return take(owner, chunk, std::move(part));
  const std::span<const float> values = *part;
  options_.streams.send(TensorKind::GROUP_PUSH, group_->members[owner].replica, group_->number,
                        {options_.self, chunk}, values, std::move(part));
  return std::nullopt;
}

std::optional<GroupServer::Sum> GroupServer::on_part(uint64_t number, uint32_t sender,
                                                     uint32_t chunk, Floats part) {
  const bool is_of_other = sender < options_.stage_replicas.size() && sender != options_.self;
  if (!is_of_other || chunk >= options_.chunk_count) return std::nullopt;
  if (!serves(number)) {
    if (number <= newest_ || early_count_ >= early_max_) return std::nullopt;
    if (early_[number].emplace(std::pair(sender, chunk), std::move(part)).second) ++early_count_;
    return std::nullopt;
  }
  const auto& members = group_->members;
  const auto member = std::find_if(members.begin(), members.end(), [&](const auto& each) {
    return each.replica == options_.stage_replicas[sender];
  });
  if (member == members.end() || owner_of(chunk) != group_->self) return std::nullopt;
  return take(static_cast<uint32_t>(member - members.begin()), chunk, std::move(part));
}

std::optional<GroupServer::Sum> GroupServer::take(uint32_t member, uint32_t chunk, Floats part) {
  // What is summed stays, emptied, so that a repeat begins nothing.
  auto& parts = group_->parts[chunk];
  if (!parts.emplace(member, std::move(part)).second) return std::nullopt;
  if (parts.size() < group_->members.size()) return std::nullopt;
  std::vector<std::span<const float>> values;
  std::vector<double> weights;
  for (const auto& [place, each] : parts) {
    values.emplace_back(*each);
    weights.push_back(group_->members[place].weight);
  }
  auto sum = std::make_shared<std::vector<float>>(options_.chunk_floats);
  plans::add_weighted(values, weights, *sum);
  for (auto& [place, each] : parts) each.reset();
  return Sum{chunk, std::move(sum)};
}

void GroupServer::hand_on(uint32_t chunk, const Floats& weights) const {
  if (owner_of(chunk) != group_->self) return;
  for (const plans::GroupMember& each : group_->members) {
    if (each.replica == options_.streams.self) continue;
    options_.streams.send(TensorKind::GROUP_PULL, each.replica, group_->number,
                          {options_.self, chunk}, *weights, weights);
  }
}

void GroupServer::abort(uint64_t number) {
  newest_ = std::max(newest_, number);
  if (serves(number)) group_.reset();
  const auto early = early_.extract(number);
  if (!early.empty()) early_count_ -= early.mapped().size();
}

}  // namespace skein::actors
