#include "net/data/link_probe.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

constexpr uint32_t kBulkFloats = 1 << 20;  // 4 MiB: an activation of a small model.
constexpr int kSmallProbes = 9;
constexpr int kBulkProbes = 4;
constexpr double kSureSeconds = 0.2;  // Noise is small beside so long a probe.
constexpr auto kKnockPatience = std::chrono::milliseconds(100);
constexpr uint32_t kTensorsMax = 4;

uint32_t floats_of(schema::TensorKind kind) {
  return kind == schema::TensorKind::PROBE_BULK ? kBulkFloats : 1;
}

}  // namespace

std::shared_ptr<LinkProbe> LinkProbe::open(DataPlane& plane, plans::WorkerId self,
                                           std::map<plans::WorkerId, std::string> addresses) {
  std::shared_ptr<LinkProbe> probe(new LinkProbe(plane, self, std::move(addresses)));  // Private.
  for (schema::TensorKind kind : {schema::TensorKind::PROBE, schema::TensorKind::PROBE_BULK,
                                  schema::TensorKind::PROBE_REPLY}) {
    probe->open_stream(kind, floats_of(kind));
  }
  return probe;
}

void LinkProbe::open_stream(schema::TensorKind kind, uint32_t floats) {
  TensorInbox::StreamSpec stream;
  stream.generation = 0;
  stream.receiver = self_.value;
  stream.kind = kind;
  stream.row_count = 1;
  stream.row_floats = floats;
  stream.tensors_max = kTensorsMax;
  stream.on_tensor = [probe = weak_from_this()](const TensorKey& key, const TensorHandle&) {
    if (auto alive = probe.lock()) alive->on_tensor(key);
  };
  plane_.inbox().open(std::move(stream));
}

void LinkProbe::on_tensor(const TensorKey& key) {
  if (key.kind != schema::TensorKind::PROBE_REPLY) {
    return send(plans::WorkerId{key.microbatch}, schema::TensorKind::PROBE_REPLY, key.step, 1);
  }
  std::lock_guard lock(mutex_);
  last_answer_ = std::max(last_answer_, key.step);
  answered_.notify_all();
}

void LinkProbe::set_addresses(std::map<plans::WorkerId, std::string> addresses) {
  std::lock_guard lock(mutex_);
  addresses_ = std::move(addresses);
}

std::string LinkProbe::address_of(plans::WorkerId worker) {
  std::lock_guard lock(mutex_);
  const auto found = addresses_.find(worker);
  return found == addresses_.end() ? std::string() : found->second;
}

void LinkProbe::send(plans::WorkerId to, schema::TensorKind kind, uint64_t number,
                     uint32_t floats) {
  const std::string address = address_of(to);
  if (address.empty()) return;
  auto memory = std::make_shared<std::vector<float>>(floats);
  DataPlane::Rows rows;
  rows.key = {0, to.value, kind, number, self_.value};
  rows.row_count = 1;
  rows.payload = *memory;
  rows.owner = memory;
  plane_.send(address, std::move(rows));
}

absl::StatusOr<double> LinkProbe::ask(plans::WorkerId peer, schema::TensorKind kind,
                                      std::chrono::milliseconds patience) {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = ++asked_;
  }
  const auto start = std::chrono::steady_clock::now();
  send(peer, kind, number, floats_of(kind));
  std::unique_lock lock(mutex_);
  if (!answered_.wait_for(lock, patience, [&] { return last_answer_ >= number; })) {
    return absl::DeadlineExceededError(
        absl::StrCat("w", peer.value, " did not answer a probe of the link to it"));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::Status LinkProbe::knock(plans::WorkerId peer, std::chrono::milliseconds patience) {
  absl::Status status = absl::DeadlineExceededError("no time to ask");
  for (auto waited = kKnockPatience; waited <= patience; waited += kKnockPatience) {
    status = ask(peer, schema::TensorKind::PROBE, kKnockPatience).status();
    if (status.ok()) return status;
  }
  return status;
}

absl::StatusOr<plans::LinkSpeed> LinkProbe::measure(plans::WorkerId peer,
                                                    std::chrono::milliseconds patience) {
  SKEIN_RETURN_IF_ERROR(knock(peer, patience));
  double small = std::numeric_limits<double>::infinity();
  double bulk = small;
  for (int i = 0; i < kSmallProbes; ++i) {
    SKEIN_ASSIGN_OR_RETURN(const double taken, ask(peer, schema::TensorKind::PROBE, patience));
    small = std::min(small, taken);
  }
  for (int i = 0; i < kBulkProbes; ++i) {
    const absl::StatusOr<double> answer = ask(peer, schema::TensorKind::PROBE_BULK, patience);
    const double taken = answer.ok() ? *answer : std::chrono::duration<double>(patience).count();
    bulk = std::min(bulk, taken);
    if (taken > kSureSeconds) break;
  }
  // Noise may make the large one look faster than the small one: then bandwidth is no limit.
  const double transfer = std::max(bulk - small, 1e-6);
  return plans::LinkSpeed{kBulkFloats * sizeof(float) / transfer, small / 2 * 1e6};
}

}  // namespace skein::net
