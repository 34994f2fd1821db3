#include "actors/averaging/stage_averages.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/averaging/model_floats.hpp"
#include "actors/worker/layer_state.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// values += addend, which may be shorter.
void add(std::vector<float>& values, const std::vector<float>& addend) {
  for (size_t i = 0; i < addend.size(); ++i) values[i] += addend[i];
}

/// Weights and moments of the embedding.
uint32_t tied_state_floats(const StageAverages::TiedEnd& tied) {
  return static_cast<uint32_t>(gpu::kStateKinds.size() * tied.floats);
}

bool has_member(const net::Average& order, plans::ReplicaId id) {
  return std::any_of(order.members.begin(), order.members.end(),
                     [&](const plans::GroupMember& each) { return each.replica == id; });
}

}  // namespace

StageAverages::StageAverages(Options options) : options_(std::move(options)) {
  const gpu::StageModel& model = *options_.model;
  if (options_.has_server) {
    server_ = std::make_unique<WeightServer>(
        WeightServer::Options{options_.streams, float_count(model, ModelFloats::kWeights)});
  }
  exchange_ = std::make_unique<WeightExchange>(WeightExchange::Options{
      options_.streams, float_count(model, ModelFloats::kWithMoments),
      options_.reduces_by_adasum ? parameter_floats(model) : std::vector<size_t>()});
  if (options_.tied && !options_.tied->is_first && !options_.tied->address.empty()) {
    options_.streams.open(net::schema::TensorKind::TIED_STATE, tied_state_floats(*options_.tied),
                          /*tensors_max=*/1);
  }
}

plans::Outcome<std::optional<plans::AverageOrder>> StageAverages::on_order(net::Average order) {
  if (order.number <= newest_) return plans::Dropped{plans::DropReason::kRepeated};
  if (!can_be(order)) return plans::Dropped{plans::DropReason::kNotAllowed};
  newest_ = order.number;
  if (order.has_server) {
    on_pulled(server_->serve(order.number, order.members, order.has_group_server));
    if (!has_member(order, options_.streams.self)) return std::optional<plans::AverageOrder>();
  }
  if (order.is_nonblocking) {
    // No policy begins a second group.
    if (running_) return plans::Dropped{plans::DropReason::kUnexpected};
    running_ = Group{std::move(order)};
    copy();
    return std::optional<plans::AverageOrder>();
  }
  plans::AverageOrder average;
  average.stage = options_.stage;
  average.number = order.number;
  average.is_closing = order.is_closing;
  average.is_global = order.is_global;
  average.is_alone = order.members.size() < 2 && !order.is_global && !order.has_server;
  average.steps_done = order.steps_done;
  if (!average.is_alone) offered_[order.number] = std::move(order);
  return std::optional(average);
}

/// What the exchange and the server take for granted.
bool StageAverages::can_be(const net::Average& order) const {
  const auto& known = options_.stage_replicas;
  for (size_t m = 0; m < order.members.size(); ++m) {
    const plans::ReplicaId id = order.members[m].replica;
    if (m > 0 && !(order.members[m - 1].replica < id)) return false;
    if (std::find(known.begin(), known.end(), id) == known.end()) return false;
  }
  if (order.has_group_server && (!order.has_server || order.members.size() < 2)) return false;
  return !order.members.empty() && (!order.has_server || server_);
}

void StageAverages::begin(uint64_t number) {
  auto offer = offered_.extract(number);
  SKEIN_CHECK(!offer.empty() && !running_)
      << "group " << number << " was not offered to stage " << options_.stage;
  running_ = Group{std::move(offer.mapped())};
  if (aborted_.erase(number) > 0) return end(false);
  const bool is_alone = running_->order.is_global && running_->order.members.size() < 2;
  if (is_alone && !options_.tied) return end(true);
  copy();
}

/// Copies the contribution: as work of the device, so that it is behind the update.
void StageAverages::copy() {
  Group& own = *running_;
  own.progress = Progress::kCopying;
  own.start_us = options_.now_us();
  own.contribution = std::make_shared<std::vector<float>>();
  own.addend = addend_;
  if (!own.order.is_nonblocking) addend_.reset();  // The result has it.
  const bool with_moments = own.order.is_global || options_.averages_moments;
  const ModelFloats which = with_moments ? ModelFloats::kWithMoments : ModelFloats::kWeights;
  gpu::Work work;
  work.name = absl::StrCat("average", own.order.number);
  work.run = [model = options_.model, which, to = own.contribution,
              addend = own.addend](gpu::Ops&) -> absl::Status {
    SKEIN_RETURN_IF_ERROR(read_floats(*model, which, *to));
    if (addend) add(*to, *addend);
    return absl::OkStatus();
  };
  options_.submit(Work::kCopy, std::move(work));
}

void StageAverages::begin_round() {
  if (!server_ && !options_.reduces_by_adasum) return;
  first_ = std::make_shared<std::vector<float>>();
  gpu::Work work;
  work.run = [model = options_.model, to = first_](gpu::Ops&) {
    return read_floats(*model, ModelFloats::kWeights, *to);
  };
  options_.submit(Work::kFirstCopy, std::move(work));
}

void StageAverages::on_work(Work work) {
  switch (work) {
    case Work::kCopy:
      return on_copied();
    case Work::kWrite:
      return end(true);
    case Work::kFirstCopy:
      return on_first_copied();
  }
}

void StageAverages::on_first_copied() {
  if (!server_) return;
  taken_ = options_.reduces_by_adasum ? std::make_shared<std::vector<float>>(*first_)
                                      : std::exchange(first_, nullptr);
  on_pulled(server_->resume(*taken_));
}

void StageAverages::on_copied() {
  if (void_copies_ > 0) {
    --void_copies_;
    return;
  }
  SKEIN_CHECK(running_ && running_->progress == Progress::kCopying)
      << "stage " << options_.stage << " has copied what nobody asked for";
  Group& own = *running_;
  own.progress = Progress::kExchanging;
  if (own.order.has_server) {
    std::vector<float>& update = *own.contribution;
    for (size_t i = 0; i < update.size(); ++i) update[i] -= (*taken_)[i];
    return on_pulled(server_->push(own.order.number, update));
  }
  if (own.order.members.size() < 2) return on_exchanged(std::move(*own.contribution));
  // A non-blocking member needs its contribution, to know what the others add.
  std::vector<float> values =
      own.order.is_nonblocking ? *own.contribution : std::move(*own.contribution);
  own.is_delta = own.order.is_global && options_.reduces_by_adasum;
  if (own.is_delta) {
    SKEIN_CHECK(first_ && first_->size() <= values.size()) << "stage " << options_.stage;
    for (size_t i = 0; i < first_->size(); ++i) values[i] -= (*first_)[i];
  }
  std::optional<WeightExchange::Done> done =
      exchange_->begin(own.order.number, own.order.members, std::move(values),
                       own.is_delta ? WeightExchange::How::kAdasum : WeightExchange::How::kMean);
  reach(options_.fail_point, FailPlace::kDuringReduction);
  if (done) on_exchanged(std::move(done->values));
}

void StageAverages::on_chunk(const net::TensorKey& key, const net::TensorHandle& chunk) {
  if (key.kind == net::schema::TensorKind::TIED_STATE) return on_tied(key, chunk);
  const bool is_for_exchange = key.kind == net::schema::TensorKind::PART ||
                               key.kind == net::schema::TensorKind::AVERAGE ||
                               key.kind == net::schema::TensorKind::DOTS;
  if (!is_for_exchange) {
    if (server_) on_pulled(server_->on_chunk(key, chunk));
    return;
  }
  std::optional<WeightExchange::Done> done = exchange_->on_chunk(key, chunk);
  if (done) on_exchanged(std::move(done->values));
}

void StageAverages::on_pulled(std::optional<WeightServer::Done> done) {
  if (!done || !running_ || running_->order.number != done->number) return;
  *taken_ = done->weights;
  on_exchanged(std::move(done->weights));
}

void StageAverages::on_exchanged(std::vector<float> values) {
  SKEIN_CHECK(running_ && running_->progress == Progress::kExchanging)
      << "stage " << options_.stage << " has a result of no group";
  Group& own = *running_;
  if (own.is_delta) add(values, *first_);
  if (own.order.is_nonblocking) {
    // The step in progress goes on with its weights; the difference comes on top of its update.
    for (size_t i = 0; i < values.size(); ++i) values[i] -= (*own.contribution)[i];
    if (addend_) add(values, *addend_);
    addend_ = std::make_shared<const std::vector<float>>(std::move(values));
    return end(true);
  }
  if (!own.order.is_global || !options_.tied) return write(std::move(values));
  if (options_.tied->is_first) {
    send_tied(values);
    return write(std::move(values));
  }
  own.progress = Progress::kAwaitingTied;
  own.result = std::move(values);
  try_write_tied();
}

void StageAverages::send_tied(const std::vector<float>& values) {
  const TiedEnd& tied = *options_.tied;
  const size_t kinds = gpu::kStateKinds.size();
  const net::TensorHandle state = make_layer_memory(tied_state_floats(tied));
  for (size_t kind = 0; kind < kinds; ++kind) {
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(kind * values.size() / kinds), tied.floats,
                state->begin() + static_cast<ptrdiff_t>(kind * tied.floats));
  }
  const uint64_t steps_done = running_->order.steps_done;
  const net::schema::TensorKind kind = net::schema::TensorKind::TIED_STATE;
  if (tied.address.empty()) {
    return options_.streams.on_chunk(
        {options_.streams.generation, tied.other.value, kind, steps_done, 0}, state);
  }
  WeightStreams to_other = options_.streams;
  to_other.addresses = {{tied.other, tied.address}};
  to_other.send(kind, tied.other, steps_done, {}, *state, state);
}

void StageAverages::on_tied(const net::TensorKey& key, const net::TensorHandle& state) {
  if (!options_.tied || options_.tied->is_first) return;
  if (!options_.streams.fits(key, state, tied_state_floats(*options_.tied))) return;
  tied_state_ = {key.step, state};
  try_write_tied();
}

/// Once the other end has averaged, too.
void StageAverages::try_write_tied() {
  const bool is_awaited = running_ && running_->progress == Progress::kAwaitingTied &&
                          tied_state_ && tied_state_->first == running_->order.steps_done;
  if (!is_awaited) return;
  const net::TensorHandle state = std::exchange(tied_state_, std::nullopt)->second;
  std::vector<float> values = std::move(running_->result);
  const size_t kinds = gpu::kStateKinds.size();
  const size_t floats = options_.tied->floats;
  for (size_t kind = 0; kind < kinds; ++kind) {
    const size_t end = (kind + 1) * values.size() / kinds;
    std::copy_n(state->begin() + static_cast<ptrdiff_t>(kind * floats), floats,
                values.begin() + static_cast<ptrdiff_t>(end - floats));
  }
  write(std::move(values));
}

void StageAverages::write(std::vector<float> values) {
  Group& own = *running_;
  own.progress = Progress::kWriting;
  const bool with_moments = own.order.is_global || options_.averages_moments;
  const ModelFloats which = with_moments ? ModelFloats::kWithMoments : ModelFloats::kWeights;
  gpu::Work work;
  work.run = [model = options_.model, which,
              result = std::make_shared<std::vector<float>>(std::move(values))](gpu::Ops&) {
    return write_floats(*model, which, *result);
  };
  options_.submit(Work::kWrite, std::move(work));
}

void StageAverages::abort(uint64_t number) {
  if (offered_.contains(number)) {
    aborted_.insert(number);
    return;
  }
  if (!running_ || running_->order.number != number || running_->progress == Progress::kWriting) {
    return;  // The replica is through with it.
  }
  if (running_->order.has_server) {
    server_->abort(number);
  } else {
    exchange_->abort(number);
  }
  if (running_->progress == Progress::kCopying) ++void_copies_;
  if (!running_->order.is_nonblocking) addend_ = running_->addend;
  end(false);
}

void StageAverages::end(bool ok) {
  const Group group = *std::exchange(running_, std::nullopt);
  if (ok) staleness_ = group.order.staleness;
  if (group.order.is_global && server_) server_->suspend();
  Ended ended{options_.stage, group.order.number, ok, group.order.is_nonblocking, std::nullopt};
  if (group.contribution) ended.start_us = group.start_us;
  options_.on_ended(ended);
}

void StageAverages::check_invariants() const {
  for (uint64_t number : aborted_) {
    SKEIN_CHECK(offered_.contains(number)) << "group " << number << " is aborted twice";
  }
  for (const auto& [number, order] : offered_) {
    SKEIN_CHECK(number == order.number && number <= newest_ && !order.is_nonblocking)
        << "group " << number << " is offered";
  }
  SKEIN_CHECK(!running_ ||
              (running_->order.number <= newest_ && !offered_.contains(running_->order.number)))
      << "group " << running_->order.number << " runs";
  SKEIN_CHECK(!running_ || running_->progress != Progress::kOffered) << "a group runs that waits";
  SKEIN_CHECK(void_copies_ >= 0) << void_copies_;
}

}  // namespace skein::actors
