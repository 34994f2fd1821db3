#include "tests/sim/pipeline_groups.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "actors/averaging/model_floats.hpp"
#include "plans/base/check.hpp"
#include "tests/net/reduce/adasum_reference.hpp"

namespace skein::sim {
namespace {

/// Sums of at most as many floats as there are pipeline replicas.
constexpr double kSumTolerance = 1e-5;
constexpr double kWeightTolerance = 1e-9;

/// Without the copy of an embedding that is tied to the head: the first stage has what counts.
std::vector<float> state_of(const gpu::StageModel& model) {
  const WatchersRead reading;
  std::vector<float> values;
  const absl::Status status = actors::read_floats(model, actors::ModelFloats::kWithMoments, values);
  SKEIN_CHECK(status.ok()) << std::string(status.message());
  if (!model.parameters().back().tied_copy) return values;
  const auto copied = static_cast<size_t>(plans::element_count(model.parameters().back()));
  const size_t kinds = gpu::kStateKinds.size(), all = values.size() / kinds;
  std::vector<float> own;
  for (size_t kind = 0; kind < kinds; ++kind) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(kind * all);
    own.insert(own.end(), first, first + static_cast<ptrdiff_t>(all - copied));
  }
  return own;
}

/// Moments follow the weights.
std::vector<float> weights_of(const std::vector<float>& state) {
  return {state.begin(), state.begin() + static_cast<ptrdiff_t>(state.size() / 3)};
}

/// to += weight * values; the shorter one ends with zeros.
template <class Vector>
void add(double weight, const Vector& values, std::vector<double>& to) {
  to.resize(std::max(to.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) to[i] += weight * double{values[i]};
}

/// The first of `count` values that is not as expected.
std::optional<size_t> difference(const std::vector<float>& values,
                                 const std::vector<double>& expected, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double most = kSumTolerance * std::max(1.0, std::abs(expected[i]));
    if (!(std::abs(double{values[i]} - expected[i]) <= most)) return i;
  }
  return std::nullopt;
}

}  // namespace

void PipelineGroups::on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica,
                                 int32_t stage, std::shared_ptr<gpu::StageModel> model) {
  if (generation > generation_) {
    generation_ = generation;
    is_unheard_ = false;
    members_.clear();
    groups_.clear();
  }
  if (generation < generation_) return;
  std::vector<float> values = state_of(*model);
  std::vector<float> weights = weights_of(values);
  std::vector<size_t> floats = actors::parameter_floats(*model);
  servers_[stage] = {Values(weights.begin(), weights.end())};
  members_[replica] = {.process = process,
                       .is_unheard = false,
                       .stage = stage,
                       .model = std::move(model),
                       .floats = std::move(floats),
                       .values = std::move(values),
                       .open = {},
                       .pending = {},
                       .being_added = {},
                       .taken = weights,
                       .first = weights};
}

void PipelineGroups::on_control(ProcessId from, const net::schema::Envelope::Reader& envelope,
                                bool arrives) {
  if (arrives || envelope.getGeneration() != generation_) return;
  const auto body = envelope.getBody();
  if (body.isAverage()) on_average(body.getAverage());
  if (body.isAveraged()) on_averaged(from, body.getAveraged());
  if (!body.isAbort()) return;
  const auto aborted = groups_.find(body.getAbort().getNumber());
  if (aborted != groups_.end()) aborted->second.is_aborted = true;
}

void PipelineGroups::on_lost(ProcessId process) {
  for (auto& [replica, member] : members_) {
    if (member.process == process) member.is_unheard = true;
  }
}

void PipelineGroups::on_update_begun(ProcessId process) {
  for (auto& [replica, member] : members_) {
    if (member.process == process) member.being_added = std::exchange(member.pending, {});
  }
}

void PipelineGroups::on_update(ProcessId process, std::optional<double> sgd_lr) {
  for (auto& [replica, member] : members_) {
    if (member.process != process) continue;
    std::vector<float> values = state_of(*member.model);
    if (sgd_lr && !is_unheard_ && !member.is_unheard) check_update(replica, values, *sgd_lr);
    member.values = std::move(values);
    member.being_added.clear();
  }
}

/// What groups add while the update is on its way to the device is for the next one. So the update
/// may have added the first ones only; the others are still to come.
void PipelineGroups::check_update(plans::ReplicaId replica, const std::vector<float>& values,
                                  double lr) {
  Member& member = members_.at(replica);
  const size_t count = values.size() / 3;
  Values expected(member.values.begin(), member.values.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) expected[i] -= lr * double{values[count + i]};  // Velocities.
  std::optional<size_t> added;
  const auto first_wrong = difference(values, expected, count);
  if (!first_wrong) added = 0;
  for (size_t n = 0; n < member.being_added.size(); ++n) {
    if (!add_gain(member.being_added[n], replica, expected)) return;  // Nothing can be said.
    if (!difference(values, expected, count)) added = n + 1;
  }
  if (!added) {
    return on_violation_(absl::StrCat("replica ", replica.value, " has ", values[*first_wrong],
                                      " after an update, which is neither that of its gradient "
                                      "nor what groups have added"));
  }
  const auto first_left = member.being_added.begin() + static_cast<ptrdiff_t>(*added);
  member.pending.insert(member.pending.begin(), first_left, member.being_added.end());
}

void PipelineGroups::on_copied(ProcessId process, uint64_t number) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return;
  for (const auto& [replica, weight] : group->second.weights) {
    if (members_.at(replica).process != process) continue;
    check_unchanged(replica, number);
    group->second.inputs[replica] = input_of(replica, group->second.is_global);
  }
}

/// Weights and moments change with updates and with groups that go well, and with nothing else.
void PipelineGroups::check_unchanged(plans::ReplicaId replica, uint64_t number) {
  const Member& member = members_.at(replica);
  if (state_of(*member.model) == member.values) return;
  on_violation_(absl::StrCat("replica ", replica.value, " has other values at group ", number,
                             " than its last update or group has left"));
}

/// What it would put into a group now. Unknown if nothing can be said of a group in which it was
/// non-blocking.
std::optional<PipelineGroups::Values> PipelineGroups::input_of(plans::ReplicaId replica,
                                                               bool with_moments) const {
  const Member& member = members_.at(replica);
  const size_t count = with_moments ? member.values.size() : member.values.size() / 3;
  Values input(member.values.begin(), member.values.begin() + static_cast<ptrdiff_t>(count));
  for (const auto* groups : {&member.pending, &member.being_added}) {
    for (uint64_t number : *groups) {
      if (!add_gain(number, replica, input)) return std::nullopt;
    }
  }
  return input;
}

/// Adds what the others have added to the weights of a non-blocking member. False: nothing can be
/// said of it.
bool PipelineGroups::add_gain(uint64_t number, plans::ReplicaId replica, Values& to) const {
  const Group& group = groups_.at(number);
  if (!group.expected) return false;
  const Values& expected = *group.expected;
  const Values& input = *group.inputs.at(replica);
  const size_t count = group.is_global ? expected.size() / 3 : expected.size();
  for (size_t i = 0; i < count; ++i) to[i] += expected[i] - input[i];
  return true;
}

/// Each member is sent the same.
void PipelineGroups::on_average(const net::schema::Average::Reader& average) {
  const uint64_t number = average.getNumber();
  const plans::ReplicaId receiver{average.getReplica()};
  if (average.getMembers().size() < 2 && !average.getGlobal() && !average.getServer()) return;
  const auto [found, is_new] = groups_.try_emplace(number);
  Group& group = found->second;
  if (average.getNonblocking()) group.nonblocking.insert(receiver);
  if (!is_new) return;
  group.is_global = average.getGlobal();
  group.is_closing = average.getClosing();
  group.has_server = average.getServer();
  group.steps_done = average.getStepsDone();
  double sum = 0;
  for (const auto member : average.getMembers()) {
    const plans::ReplicaId replica{member.getReplica()};
    group.weights[replica] = member.getWeight();
    group.order.push_back(replica);
    sum += member.getWeight();
    std::optional<uint64_t>& open = members_[replica].open;
    if (open) {
      on_violation_(absl::StrCat("replica ", replica.value, " is in groups ", *open, " and ",
                                 number, " at once"));
    }
    open = number;
  }
  if (!group.has_server && std::abs(sum - 1) > kWeightTolerance) {
    on_violation_(absl::StrCat("the weights of group ", number, " add up to ", sum));
  }
}

void PipelineGroups::on_averaged(ProcessId from, const net::schema::Averaged::Reader& averaged) {
  const plans::ReplicaId replica{averaged.getReplica()};
  const uint64_t number = averaged.getNumber();
  Member& member = members_[replica];
  if (member.open == number) member.open.reset();
  const auto group = groups_.find(number);
  if (!averaged.getOk()) return on_failed(number, replica);
  if (group == groups_.end()) {
    return on_violation_(absl::StrCat("replica ", replica.value, " is through with group ", number,
                                      ", which nobody has formed"));
  }
  if (group->second.nonblocking.contains(replica)) {
    expect(number, group->second);
    member.pending.push_back(number);
    return;
  }
  if (group->second.has_server) return on_pushed(number, group->second, replica);
  std::vector<float> values = state_of(*member.model);
  check(number, group->second, replica, values);
  member.values = std::move(values);
  member.pending.clear();  // It was in its contribution.
  if (!group->second.is_global) return;
  member.taken = member.first = weights_of(member.values);
  servers_[member.stage] = {Values(member.taken.begin(), member.taken.end()), number + 1};
  on_global_(from, replica, group->second.steps_done);
}

void PipelineGroups::on_failed(uint64_t number, plans::ReplicaId replica) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return;
  if (!group->second.is_aborted) {
    on_violation_(absl::StrCat("group ", number, " fails for replica ", replica.value,
                               ", and nobody has aborted it"));
  }
  // Some shards may have what it has pushed, and others not.
  if (group->second.has_server) servers_[members_.at(replica).stage].is_known = false;
  // A non-blocking member may be in the middle of an update.
  if (!group->second.nonblocking.contains(replica)) check_unchanged(replica, number);
}

void PipelineGroups::on_pushed(uint64_t number, Group& group, plans::ReplicaId replica) {
  Member& member = members_[replica];
  Server& server = servers_[member.stage];
  const double weight = group.weights.at(replica);
  // One that is late may have pushed before the global average that the server goes on with.
  const bool is_of_this_server = number >= server.first_group;
  if (is_of_this_server) {
    add(weight, weights_of(member.values), server.weights);
    add(-weight, member.taken, server.weights);
  }
  member.values = state_of(*member.model);
  member.taken = weights_of(member.values);
  const bool has_ended = ++group.through == group.weights.size();
  if (has_ended && is_of_this_server && group.is_closing && server.is_known)
    check_server(number, group, server);
}

void PipelineGroups::check_server(uint64_t number, const Group& group, const Server& server) {
  for (const auto& [replica, weight] : group.weights) {
    const std::vector<float>& taken = members_.at(replica).taken;
    const auto wrong = difference(taken, server.weights, taken.size());
    if (!wrong) continue;
    on_violation_(absl::StrCat("replica ", replica.value, " has ", taken[*wrong],
                               " of its server "
                               "after group ",
                               number, ", and what was pushed adds up to ",
                               server.weights[*wrong]));
    return;
  }
}

/// What the members' devices have copied, in their order. None: nothing can be said of one of them.
std::optional<std::vector<PipelineGroups::Values>> PipelineGroups::inputs_of(
    uint64_t number, const Group& group) const {
  std::vector<Values> inputs;
  for (plans::ReplicaId replica : group.order) {
    // Who is alone in a global average has nothing to copy.
    const auto copied = group.inputs.find(replica);
    const bool is_alone = group.order.size() == 1;
    if (copied == group.inputs.end() && !is_alone) {
      on_violation_(absl::StrCat("group ", number, " has a result before replica ", replica.value,
                                 " has copied its contribution"));
      return std::nullopt;
    }
    std::optional<Values> input = is_alone ? input_of(replica, group.is_global) : copied->second;
    if (!input) return std::nullopt;
    inputs.push_back(*std::move(input));
  }
  return inputs;
}

PipelineGroups::Values PipelineGroups::result_of(const Group& group,
                                                 const std::vector<Values>& inputs) const {
  Values result;
  for (size_t m = 0; m < inputs.size(); ++m) {
    add(group.weights.at(group.order[m]), inputs[m], result);
  }
  if (!reduces_by_adasum_ || !group.is_global || inputs.size() == 1) return result;
  const Values weights = adasum_of(members_.at(group.order.front()), inputs);
  std::copy(weights.begin(), weights.end(), result.begin());
  return result;
}

/// The weights that the members' round began with, and Adasum of what they have added.
PipelineGroups::Values PipelineGroups::adasum_of(const Member& member,
                                                 const std::vector<Values>& inputs) const {
  Values weights(member.first.begin(), member.first.end());
  size_t begin = 0;
  for (const size_t floats : member.floats) {
    if (begin == weights.size()) break;  // The copy of a tied embedding, which is no part of it.
    std::vector<std::vector<float>> added;
    for (const Values& input : inputs) {
      std::vector<float>& own = added.emplace_back(floats);
      for (size_t i = 0; i < floats; ++i) {
        own[i] = static_cast<float>(input[begin + i] - double{member.first[begin + i]});
      }
    }
    const std::vector<double> sum = net::adasum_reference(added);
    for (size_t i = 0; i < floats; ++i) weights[begin + i] += sum[i];
    begin += floats;
  }
  return weights;
}

/// The first one is through.
void PipelineGroups::expect(uint64_t number, Group& group) {
  if (std::exchange(group.is_known, true)) return;
  const auto inputs = inputs_of(number, group);
  if (inputs) group.expected = result_of(group, *inputs);
}

void PipelineGroups::check(uint64_t number, Group& group, plans::ReplicaId replica,
                           const std::vector<float>& values) {
  // Moments follow the weights.
  const size_t count = group.is_global ? values.size() : values.size() / 3;
  if (!std::all_of(values.begin(), values.end(), [](float each) { return std::isfinite(each); })) {
    on_violation_(absl::StrCat("replica ", replica.value, " has values that are not finite"));
  }
  if (group.result.empty()) {
    group.result = values;
    expect(number, group);
  }
  const auto wrong = group.expected ? difference(values, *group.expected, count) : std::nullopt;
  if (wrong) {
    on_violation_(absl::StrCat("replica ", replica.value, " has ", values[*wrong], " instead of ",
                               (*group.expected)[*wrong], " after group ", number,
                               group.is_global ? " of all" : ""));
  }
  if (std::equal(values.begin(), values.begin() + static_cast<ptrdiff_t>(count),
                 group.result.begin())) {
    return;
  }
  on_violation_(absl::StrCat("members of group ", number, " differ after it"));
}

}  // namespace skein::sim
