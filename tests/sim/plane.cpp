#include "tests/sim/plane.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/worker/layer_state.hpp"
#include "net/data/tensor_header.hpp"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

using Header = net::Wire<net::schema::TensorHeader>;

/// As `net::DataPlane::Options::connect_timeout_seconds`.
constexpr uint64_t kConnectTimeoutUs = 10'000'000;
constexpr uint64_t kResetUs = 1'000;
/// As `net::PeerWatch`.
constexpr uint64_t kLookUs = 250'000;
constexpr double kSilentPart = 0.75;

void damage(net::DataPlane::Rows& rows) {
  auto copy = std::make_shared<std::vector<float>>(rows.payload.begin(), rows.payload.end());
  copy->front() = -copy->front();
  actors::seal_layer_state(rows.key.receiver, *copy);
  rows.payload = *copy;
  rows.owner = std::move(copy);
}

/// What a header that is encoded and parsed says of rows.
net::TensorStream::Rows through_header(const net::DataPlane::Rows& sent) {
  const Header encoded = net::make_tensor_header(sent, false);
  const auto parsed = Header::parse(encoded.bytes());
  SKEIN_CHECK(parsed.ok()) << std::string(parsed.status().message());
  const auto header = **parsed;
  net::TensorStream::Rows rows;
  rows.key = {header.getGeneration(), header.getReceiver(), header.getKind(), header.getStep(),
              header.getMicrobatch()};
  rows.begin = header.getRowBegin();
  rows.count = header.getRowCount();
  rows.bytes = header.getPayloadBytes();
  return rows;
}

bool is_copy_of_state(net::schema::TensorKind kind) {
  return kind == net::schema::TensorKind::SNAPSHOT;
}

}  // namespace

/// Whoever drops it half way has lost the connection: the place goes to others.
struct SimulatedPlane::Reading {
  std::shared_ptr<net::TensorStream> stream;  // Null: it has not begun.
  net::TensorStream::Rows rows;
  std::span<float> memory;
  std::span<const float> payload;
  bool is_whole = false;

  Reading() = default;
  ~Reading() {
    if (stream && !is_whole) stream->abandon(rows);
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
};

SimulatedPlane::SimulatedPlane(World& world, Network& network, Planes& planes, Options options)
    : world_(world),
      network_(network),
      planes_(planes),
      options_(std::move(options)),
      address_(options_.address) {
  planes_.by_address[address_] = this;
}

SimulatedPlane::~SimulatedPlane() {
  *alive_ = false;
  planes_.by_address.erase(address_);
}

void SimulatedPlane::send(const std::string& address, Rows rows) {
  const uint64_t generation = rows.key.generation;
  if (!world_.is_alive(options_.process) || (generation > 0 && generation < floor_)) return;
  if (options_.damages_moves && rows.key.kind == net::schema::TensorKind::STATE) damage(rows);
  if (is_copy_of_state(rows.key.kind)) {
    copies_.push_back({rows.owner, {const_cast<float*>(rows.payload.data()), rows.payload.size()}});
  }
  const std::shared_ptr<Flow> flow = flow_to(address, rows);
  if (flow->lost) return;
  if (flow->is_made) return push(flow, address, rows);
  flow->waiting.push_back(std::move(rows));
}

void SimulatedPlane::push(const std::shared_ptr<Flow>& flow, const std::string& address,
                          const Rows& rows) {
  const auto reading = options_.payloads_take_time ? std::make_shared<Reading>() : nullptr;
  flow->channel->push(
      [&planes = planes_, weak = std::weak_ptr(flow), address, said = through_header(rows), rows,
       reading] {
        const auto peer = planes.by_address.find(address);
        const std::shared_ptr<Flow> alive = weak.lock();
        if (peer == planes.by_address.end() || !alive) return true;
        alive->reached = true;
        const bool is_of_plan = rows.key.generation > 0;
        if (is_of_plan && alive->term != peer->second->identity_.term) return true;
        return peer->second->take(said, rows.payload, *alive, reading);
      },
      network_.tensor_us());
}

std::shared_ptr<SimulatedPlane::Flow> SimulatedPlane::flow_to(const std::string& address,
                                                              const Rows& rows) {
  const Name name{rows.key.generation, address, rows.key.receiver, rows.key.kind};
  auto& flow = flows_[name];
  if (flow && !(rows.key.generation == 0 && flow->lost)) return flow;
  flow = std::make_shared<Flow>();
  flow->term = identity_.term;
  flow->sender = identity_.self;
  flow->secret = secrets_.of(rows.key.generation);
  const auto peer = planes_.by_address.find(address);
  const ProcessId to = peer == planes_.by_address.end() ? 0 : peer->second->options_.process;
  flow->channel = std::make_shared<Channel>(world_, network_, options_.process, to);
  network_.add(flow->channel);
  connect(flow, name, world_.now_us() + kConnectTimeoutUs);
  return flow;
}

/// While nobody answers it is tried again and again.
void SimulatedPlane::connect(const std::shared_ptr<Flow>& flow, const Name& name,
                             uint64_t deadline_us) {
  if (flow->lost) return;
  const std::string& address = std::get<1>(name);
  const bool is_there = planes_.by_address.contains(address);
  if (is_there && !is_dropped(address)) {
    flow->is_made = true;
    for (const Rows& rows : std::exchange(flow->waiting, {})) push(flow, address, rows);
    return;
  }
  if (world_.now_us() >= deadline_us) return lose(flow, name, "connection refused");
  const uint64_t again_us =
      is_there ? std::min(cut_until_us_.at(address), deadline_us) : deadline_us;
  world_.at(again_us, options_.process,
            [this, flow, name, deadline_us] { connect(flow, name, deadline_us); });
}

bool SimulatedPlane::is_dropped(const std::string& address) const {
  const auto cut = cut_until_us_.find(address);
  return cut != cut_until_us_.end() && cut->second > world_.now_us();
}

void SimulatedPlane::lose(const std::shared_ptr<Flow>& flow, const Name& name,
                          const std::string& why) {
  if (flow->lost) return;
  flow->lost = true;
  flow->channel->go_silent();
  const auto& [generation, address, receiver, kind] = name;
  if (generation > 0 && generation < floor_) return;
  options_.on_peer_lost(address, absl::UnavailableError(why));
}

bool SimulatedPlane::take(net::TensorStream::Rows rows, std::span<const float> payload,
                          const Flow& from, const std::shared_ptr<Reading>& reading) {
  if (reading && reading->stream) return reading->is_whole;
  const uint64_t said_generation = rows.key.generation;
  rows.sender = from.sender;
  if (options_.ignores_generation) rows.key.generation = newest_of(rows.key);
  if (rows.key.generation > 0 && rows.key.generation < floor_) return true;
  const auto found = streams_.find({rows.key.generation, rows.key.receiver, rows.key.kind});
  if (found != streams_.end()) {
    const std::shared_ptr<net::TensorStream> stream = found->second;
    if (from.secret != secrets_.of(said_generation)) return true;
    if (!stream->check(rows).ok() || stream->is_repeat(rows)) return true;
    if (stream->has_space(rows)) {
      const absl::StatusOr<std::span<float>> memory = stream->reserve(rows);
      SKEIN_CHECK(memory.ok()) << memory.status();
      if (reading) {
        reading->stream = stream;
        reading->rows = rows;
        reading->memory = *memory;
        reading->payload = payload;
        begin(reading, from.channel);
        return false;
      }
      std::memcpy(memory->data(), payload.data(), payload.size_bytes());
      stream->arrived(rows);
      return true;
    }
  }
  waiting_.push_back(from.channel->weak_from_this());
  return false;
}

void SimulatedPlane::begin(const std::shared_ptr<Reading>& reading,
                           const std::shared_ptr<Channel>& channel) {
  const size_t half = reading->payload.size() / 2;
  std::copy_n(reading->payload.begin(), half, reading->memory.begin());
  world_.after(
      network_.tensor_us() / 2 + 1, options_.process,
      [this, alive = alive_, weak = std::weak_ptr(reading), from = std::weak_ptr(channel), half] {
        const auto comes = weak.lock();
        const auto line = from.lock();
        if (!comes || !line) return;
        const auto rest = comes->payload.subspan(half);
        std::copy(rest.begin(), rest.end(), comes->memory.subspan(half).begin());
        comes->is_whole = true;
        comes->stream->arrived(comes->rows);
        line->pump();
        if (*alive) wake_soon();  // Others may have the same rows.
      });
}

/// As if streams had no generation: that of the newest open one of this name, or one to come.
uint64_t SimulatedPlane::newest_of(const net::TensorKey& key) const {
  uint64_t newest = floor_;
  for (const auto& [name, stream] : streams_) {
    const auto& [generation, receiver, kind] = name;
    if (receiver == key.receiver && kind == key.kind) newest = std::max(newest, generation);
  }
  return newest;
}

void SimulatedPlane::watch(uint64_t generation, std::vector<std::string> addresses,
                           double patience_seconds) {
  for (const std::string& address : addresses) {
    auto watch = std::make_shared<Watch>();
    *watch = {generation, address, static_cast<uint64_t>(patience_seconds * 1e6 * kSilentPart), {}};
    look(watch);
  }
}

void SimulatedPlane::look(const std::shared_ptr<Watch>& watch) {
  if (watch->generation < floor_) return;
  const uint64_t now_us = world_.now_us();
  if (!is_cut_off(watch->address)) {
    watch->since_us.reset();
  } else if (!watch->since_us) {
    watch->since_us = now_us;
  } else if (now_us - *watch->since_us >= watch->patience_us) {
    return options_.on_unreachable(watch->address, absl::UnavailableError("it does not answer"));
  }
  world_.after(kLookUs, options_.process, [this, alive = alive_, watch] {
    if (*alive) look(watch);
  });
}

/// Dead processes are found in other ways.
bool SimulatedPlane::is_cut_off(const std::string& address) const {
  const auto peer = planes_.by_address.find(address);
  if (peer == planes_.by_address.end()) return false;
  return network_.is_parted(options_.process, peer->second->options_.process) ||
         is_dropped(address);
}

void SimulatedPlane::check_listener(const std::string& address, double patience_seconds,
                                    std::function<void()> on_gone) {
  if (options_.takes_all_for_dead) return world_.after(0, options_.process, std::move(on_gone));
  if (patience_seconds <= 0) return;
  const double waited = static_cast<double>(kLookUs) * 1e-6;
  const auto refused = planes_.refused.find(address);
  const bool is_known =
      refused != planes_.refused.end() && !network_.is_parted(options_.process, refused->second);
  const uint64_t after_us = is_known ? network_.delay_us() : kLookUs;
  world_.after(after_us, options_.process,
               [this, alive = alive_, is_known, address, left = patience_seconds - waited,
                on_gone = std::move(on_gone)] {
                 if (is_known) return on_gone();
                 if (*alive) check_listener(address, left, on_gone);
               });
}

void SimulatedPlane::open(StreamSpec stream) {
  const StreamName name{stream.generation, stream.receiver, stream.kind};
  if (is_copy_of_state(stream.kind)) {
    stream.on_tensor = [this, alive = alive_, inner = std::move(stream.on_tensor)](
                           const net::TensorKey& key, net::TensorHandle tensor) {
      if (*alive) copies_.push_back({tensor, *tensor});
      inner(key, std::move(tensor));
    };
  }
  auto on_space = [this, alive = alive_] {
    if (*alive) wake_soon();
  };
  streams_[name] = std::make_shared<net::TensorStream>(std::move(stream), on_space);
  wake_soon();
}

void SimulatedPlane::wake_soon() {
  if (waiting_.empty()) return;
  world_.after(0, options_.process, [this] { wake(); });
}

void SimulatedPlane::wake() {
  for (const auto& weak : std::exchange(waiting_, {})) {
    if (auto channel = weak.lock()) channel->pump();
  }
}

void SimulatedPlane::close(uint64_t generation, uint32_t receiver, net::schema::TensorKind kind) {
  streams_.erase({generation, receiver, kind});
}

void SimulatedPlane::close_before(uint64_t generation) {
  floor_ = std::max(floor_, generation);
  if (!options_.ignores_generation) secrets_.forget_before(floor_);
  for (auto each = flows_.begin(); each != flows_.end();) {
    const uint64_t its = std::get<0>(each->first);
    if (its == 0 || its >= floor_) {
      ++each;
      continue;
    }
    each->second->lost = true;
    if (!world_.chance(options_.late_rows_chance)) each->second->channel->go_silent();
    world_.after(kConnectTimeoutUs, 0, [kept = each->second] {});  // What is on its way lives.
    each = flows_.erase(each);
  }
  streams_.erase(streams_.lower_bound({1, 0, {}}), streams_.lower_bound({floor_, 0, {}}));
  wake_soon();
}

void SimulatedPlane::drop_link(const std::string& address, double seconds) {
  cut_until_us_[address] =
      seconds == 0 ? UINT64_MAX : world_.now_us() + static_cast<uint64_t>(seconds * 1e6);
  for (const auto& [name, flow] : std::map(flows_)) {
    if (std::get<1>(name) == address && flow->is_made)
      lose(flow, name, "the link was dropped on purpose");
  }
}

void SimulatedPlane::on_killed(bool silent) {
  for (const auto& [name, flow] : flows_) {
    // What it was sending stops in the middle, or was in its kernel's hands already.
    if (options_.payloads_take_time && world_.chance(0.5)) flow->channel->go_silent();
  }
  for (const auto& [address, plane] : planes_.by_address) {
    for (const auto& [name, flow] : plane->flows_) {
      if (std::get<1>(name) != address_) continue;
      flow->channel->go_silent();
      if (silent) continue;
      const uint64_t after_us = flow->reached ? kResetUs : kConnectTimeoutUs;
      world_.after(after_us, plane->options_.process, [plane = plane, flow = flow, name = name] {
        plane->lose(flow, name, "connection reset by peer");
      });
    }
  }
  planes_.by_address.erase(address_);
  if (!silent) planes_.refused[address_] = options_.process;
}

std::weak_ptr<const void> SimulatedPlane::damage_copy() {
  std::erase_if(copies_, [](const Copy& each) { return each.owner.expired(); });
  if (copies_.empty()) return {};
  Copy& copy = copies_[world_.rng().below(copies_.size())];
  const auto alive = copy.owner.lock();
  float& value = copy.values[world_.rng().below(copy.values.size())];
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (1u << world_.rng().below(32)));
  return copy.owner;
}

}  // namespace skein::sim
