#include "tests/sim/groups.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

constexpr uint64_t kRetryUs = 50'000;

/// Adds numbers whose memory is given as floats.
template <class Number>
void add(const std::vector<float>& values, std::vector<float>& sum) {
  const std::span<const std::byte> from = std::as_bytes(std::span(values));
  const std::span<std::byte> to = std::as_writable_bytes(std::span(sum));
  for (size_t at = 0; at + sizeof(Number) <= from.size(); at += sizeof(Number)) {
    Number value, total;
    std::memcpy(&value, from.data() + at, sizeof(Number));
    std::memcpy(&total, to.data() + at, sizeof(Number));
    total += value;
    std::memcpy(to.data() + at, &total, sizeof(Number));
  }
}

/// As Gloo's members name it: where `from` awaits `to`.
std::string key_of(const std::string& name, uint32_t from, uint32_t to) {
  return absl::StrCat(name, "/", from, "-", to);
}

/// The product's store, where nobody waits for what comes: who cares is told.
class MeetingStore final : public net::RendezvousStore {
 public:
  MeetingStore(Publish publish, std::function<void()> on_entry)
      : inner_(create(std::move(publish))), on_entry_(std::move(on_entry)) {}

  void put(const std::string& key, const std::vector<char>& value,
           const Receivers& receivers) override {
    inner_->put(key, value, receivers);
  }
  void deliver(const std::string& key, const std::vector<char>& value) override {
    inner_->deliver(key, value);
    on_entry_();
  }
  absl::StatusOr<std::vector<char>> wait(const std::string& key, double) override {
    return inner_->wait(key, 0);
  }
  void cancel_prefix(const std::string& prefix) override { inner_->cancel_prefix(prefix); }
  void cancel() override { inner_->cancel(); }

 private:
  const std::shared_ptr<net::RendezvousStore> inner_;
  const std::function<void()> on_entry_;
};

}  // namespace

std::shared_ptr<net::RendezvousStore> Groups::make_store(net::RendezvousStore::Publish publish) {
  return std::make_shared<MeetingStore>(std::move(publish), [this] { meet_all(); });
}

actors::GroupParts Groups::make_member(ProcessId process, plans::GroupId number,
                                       const net::GradientGroup::Options& options,
                                       std::shared_ptr<net::RendezvousStore> store) {
  Group& group = groups_[options.name];
  group.count = options.rank_count;
  Member& member = group.members[options.rank];
  member = {};
  member.process = process;
  member.is_float64 = options.reducer.is_float64;
  member.partners = options.partners;
  member.store = std::move(store);
  group.connect_us = static_cast<uint64_t>(options.connect_timeout_seconds * 1e6);
  const auto appear_us = static_cast<uint64_t>(options.appear_timeout_seconds * 1e6);
  const auto reduce_us = static_cast<uint64_t>(options.timeout_seconds * 1e6);
  const std::string name = options.name;
  const uint32_t rank = options.rank;
  auto late = [this, name, rank, process](uint64_t after_us, uint64_t round) {
    world_.after(after_us, process, [this, name, rank, round] {
      const Member* waiting = find(name, rank);
      if (waiting == nullptr || !waiting->done || groups_[name].round != round) return;
      finish(name, rank, absl::DeadlineExceededError("a member does not answer"), 0);
    });
  };
  actors::GroupIo io = world_.system().spawn([this, name, rank, number, appear_us, reduce_us,
                                              late]() -> actors::GroupIo::behavior_type {
    return {
        [this, name, rank, number, appear_us, late](const actors::FormGroup& form,
                                                    const actors::FormListener& listener) {
          late(appear_us, 0);
          join(name, rank, [number, listener, generation = form.generation](absl::Status s) {
            caf::anon_send(listener, actors::GroupFormed{generation, number, std::move(s)});
          });
        },
        [this, name, rank, number, reduce_us, late](const actors::ReductionRequest& request,
                                                    const actors::ReductionListener& listener) {
          late(reduce_us, groups_[name].round);
          reduce(
              name, rank, request,
              [number, listener, step = request.step, bucket = request.bucket](absl::Status s) {
                caf::anon_send(listener, actors::ReductionDone{number, step, bucket, std::move(s)});
              });
        }};
  });
  return {io, [this, name, rank] { abort(name, rank); }};
}

Groups::Member* Groups::find(const std::string& name, uint32_t rank) {
  const auto group = groups_.find(name);
  if (group == groups_.end()) return nullptr;
  const auto member = group->second.members.find(rank);
  return member == group->second.members.end() ? nullptr : &member->second;
}

void Groups::finish(const std::string& name, uint32_t rank, const absl::Status& status,
                    uint64_t delay_us) {
  Member* member = find(name, rank);
  if (member == nullptr || !member->done) return;
  Done done = std::exchange(member->done, nullptr);
  if (!status.ok()) spoil(*member);
  world_.after(delay_us, member->process, [done, status] { done(status); });
}

/// A sum that breaks off leaves numbers that are neither the member's own nor the sum.
void Groups::spoil(Member& member) const {
  if (!member.step || !world_.is_alive(member.process)) return;
  const auto begun = member.values.first(member.values.size() / 2);
  std::fill(begun.begin(), begun.end(), std::numeric_limits<float>::quiet_NaN());
  member.step.reset();
}

bool Groups::is_parted(const Group& group) const {
  for (const auto& [a, first] : group.members) {
    for (const auto& [b, second] : group.members) {
      const bool connects = a < b && first.partners.contains(b);
      if (connects && network_.is_parted(first.process, second.process)) return true;
    }
  }
  return false;
}

void Groups::join(const std::string& name, uint32_t rank, Done done) {
  Group& group = groups_[name];
  Member& own = group.members[rank];
  own.done = std::move(done);
  own.formed = true;
  if (own.gone) return finish(name, rank, absl::CancelledError("the group was aborted"), 0);
  if (own.store) return appear(name, rank);
  bool complete = group.members.size() == group.count;
  for (const auto& [each, member] : group.members) {
    complete = complete && member.formed && !member.gone;
  }
  if (!complete) return;  // One that was there and is gone is noticed at the time-out only.
  if (is_parted(group)) {
    if (!own.parted_since_us) own.parted_since_us = world_.now_us();
    if (world_.now_us() - *own.parted_since_us > group.connect_us) {
      return finish(name, rank, absl::DeadlineExceededError("a member does not connect"), 0);
    }
    world_.after(kRetryUs, own.process, [this, name, rank] {
      Member* waiting = find(name, rank);
      if (waiting != nullptr && waiting->done) join(name, rank, std::move(waiting->done));
    });
    return;
  }
  group.formed = true;
  for (const auto& [each, member] : std::map(group.members)) {
    finish(name, each, absl::OkStatus(), network_.delay_us() * 3);
  }
}

void Groups::appear(const std::string& name, uint32_t rank) {
  const Member& own = *find(name, rank);
  forming_.insert(name);
  const std::vector<char> address = {'a'};
  for (const auto& [partner, worker] : std::map(own.partners)) {
    own.store->put(key_of(name, rank, partner), address, {worker});
  }
  try_meet(name);
}

bool Groups::hears(const std::string& name, uint32_t rank, const Member& member) {
  return std::all_of(member.partners.begin(), member.partners.end(), [&](const auto& partner) {
    return member.store->wait(key_of(name, partner.first, rank), 0).ok();
  });
}

/// Each of its partners is there, has heard of it, and can be reached.
bool Groups::can_connect(const std::string& name, uint32_t rank, const Member& member) {
  return std::all_of(member.partners.begin(), member.partners.end(), [&](const auto& partner) {
    const Member* other = find(name, partner.first);
    return other != nullptr && other->formed && !other->gone && other->store &&
           other->store->wait(key_of(name, rank, partner.first), 0).ok() &&
           !network_.is_parted(member.process, other->process);
  });
}

void Groups::try_meet(const std::string& name) {
  Group& group = groups_[name];
  bool is_complete = group.members.size() == group.count;
  bool is_retried = false;
  for (auto& [rank, member] : group.members) {
    const bool waits = !member.has_met && member.formed && !member.gone && member.done;
    if (waits && !member.has_heard && hears(name, rank, member)) {
      member.has_heard = true;
      world_.after(group.connect_us, member.process, [this, name, rank = rank] {
        const Member* late = find(name, rank);
        if (late == nullptr || late->has_met || !late->done) return;
        finish(name, rank, absl::DeadlineExceededError("a member does not connect"), 0);
      });
    }
    if (waits && member.has_heard && can_connect(name, rank, member)) {
      member.has_met = true;
      finish(name, rank, absl::OkStatus(), network_.delay_us() * 3);
    }
    is_retried = is_retried || (waits && member.has_heard && !member.has_met);
    is_complete = is_complete && member.has_met;
  }
  if (is_complete) {
    group.formed = true;
    forming_.erase(name);
  } else if (is_retried && !std::exchange(group.retries, true)) {  // A closed way may open again.
    world_.after(kRetryUs, 0, [this, name] {
      groups_[name].retries = false;
      if (forming_.contains(name)) try_meet(name);
    });
  }
}

void Groups::meet_all() {
  for (const std::string& name : std::set(forming_)) try_meet(name);
}

bool Groups::is_in_the_middle(ProcessId process) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& each) {
    const auto& members = each.second.members;
    const auto is_own = [&](const auto& member) {
      return member.second.process == process && !member.second.gone && member.second.done;
    };
    return std::any_of(members.begin(), members.end(), is_own);
  });
}

bool Groups::is_one_half_formed() const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& each) {
    const Group& group = each.second;
    const auto waits = [&](const auto& member) {
      return member.second.formed && !member.second.gone && member.second.done;
    };
    return !group.formed && std::any_of(group.members.begin(), group.members.end(), waits);
  });
}

bool Groups::is_one_half_summed() const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& each) {
    const Group& group = each.second;
    const auto asked =
        std::count_if(group.members.begin(), group.members.end(), [](const auto& member) {
          return member.second.step && member.second.done && !member.second.gone;
        });
    return group.formed && asked > 0 && static_cast<size_t>(asked) < group.members.size();
  });
}

void Groups::reduce(const std::string& name, uint32_t rank, const actors::ReductionRequest& request,
                    Done done) {
  Group& group = groups_[name];
  Member& own = group.members[rank];
  own.done = std::move(done);
  own.step = request.step;
  own.bucket = request.bucket;
  own.values = request.values;
  own.copy.assign(request.values.begin(), request.values.end());
  for (const auto& [each, member] : group.members) {
    if (!member.gone || member.silent) continue;
    return finish(name, rank, absl::UnavailableError("a member of the group is gone"), 0);
  }
  try_reduce(name);
}

void Groups::try_reduce(const std::string& name) {
  Group& group = groups_[name];
  const Member* first = nullptr;
  for (const auto& [rank, member] : group.members) {
    if (!member.done || !member.step || member.gone) return;
    if (first == nullptr) first = &member;
    if (member.step != first->step || member.bucket != first->bucket ||
        member.copy.size() != first->copy.size()) {
      on_violation_(absl::StrCat("the members of ", name, " add up buckets ", first->bucket,
                                 " of step ", *first->step, " and ", member.bucket, " of step ",
                                 *member.step));
      return;
    }
  }
  if (is_parted(group)) {
    world_.after(kRetryUs, 0, [this, name, round = group.round] {
      if (groups_.contains(name) && groups_[name].round == round) try_reduce(name);
    });
    return;
  }
  auto sum = std::make_shared<std::vector<float>>(first->copy.size());
  for (const auto& [rank, member] : group.members) {
    member.is_float64 ? add<double>(member.copy, *sum) : add<float>(member.copy, *sum);
  }
  ++group.round;
  for (auto& [rank, member] : group.members) {
    member.step.reset();
    // A member may go on while another has not heard yet, and never will if something breaks.
    world_.after(network_.delay_us(), member.process, [this, name, rank = rank, sum] {
      Member* waiting = find(name, rank);
      if (waiting == nullptr || !waiting->done || waiting->gone) return;
      std::copy(sum->begin(), sum->end(), waiting->values.begin());
      std::exchange(waiting->done, nullptr)(absl::OkStatus());
    });
  }
}

void Groups::abort(const std::string& name, uint32_t rank) {
  Member* own = find(name, rank);
  if (own == nullptr || own->gone) return;
  own->gone = true;
  if (own->store) own->store->cancel_prefix(absl::StrCat(name, "/"));
  forming_.erase(name);  // It will not form.
  finish(name, rank, absl::CancelledError("the group was aborted"), 0);
  break_group(name, "a member has left the group");
}

void Groups::break_group(const std::string& name, const std::string& why) {
  if (!groups_[name].formed) return;
  for (const auto& [rank, member] : std::map(groups_[name].members)) {
    if (!member.gone) finish(name, rank, absl::UnavailableError(why), network_.delay_us());
  }
}

void Groups::on_killed(ProcessId process, bool silent) {
  for (auto& [name, group] : groups_) {
    bool hit = false;
    for (auto& [rank, member] : group.members) {
      if (member.process != process || (member.gone && !member.done)) continue;
      member.gone = hit = true;
      member.silent = silent;
      member.done = nullptr;
    }
    if (hit && !silent) break_group(name, "connection closed by peer");
  }
}

}  // namespace skein::sim
