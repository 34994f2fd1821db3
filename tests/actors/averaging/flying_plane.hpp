#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/data/data_plane.hpp"
#include "plans/base/rng.hpp"

namespace skein::actors {

/// A tensor on its way to `address`.
struct Flying {
  std::string address;
  net::DataPlane::Rows rows;
};

/// Lets the test say which of the tensors on their way arrives next.
class FlyingPlane : public net::DataPlane, public net::TensorInbox {
 public:
  FlyingPlane(std::string address, std::vector<Flying>& flying)
      : address_(std::move(address)), flying_(flying) {}
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string& address, Rows rows) override {
    floats_sent += rows.payload.size();
    ++tensors_sent[rows.key.kind];
    flying_.push_back({address, std::move(rows)});
  }
  net::DataPlaneStatistics statistics() const override { return {}; }
  void open(StreamSpec stream) override { streams[stream.kind] = std::move(stream); }
  void close(uint64_t, uint32_t, net::schema::TensorKind) override {}
  void close_before(uint64_t) override {}  // Ends with the plane and its inbox.
  void drop_link(const std::string&, double) override {}

  /// False if the sender would have to wait for room.
  bool arrives(const net::TensorKey& key, std::span<const float> payload) {
    struct Tensor {
      std::vector<float> values;
      std::span<float> span;
    };
    auto tensor = std::make_shared<Tensor>();
    tensor->values.assign(payload.begin(), payload.end());
    tensor->span = tensor->values;
    auto& held = held_[key.kind];
    std::erase_if(held, [](const auto& each) { return each.expired(); });
    if (held.size() >= streams.at(key.kind).tensors_max) return false;
    held.emplace_back(tensor);
    streams.at(key.kind).on_tensor(key, net::TensorHandle(tensor, &tensor->span));
    return true;
  }
  size_t held(net::schema::TensorKind kind) {
    auto& held = held_[kind];
    std::erase_if(held, [](const auto& each) { return each.expired(); });
    return held.size();
  }

  std::map<net::schema::TensorKind, StreamSpec> streams;
  uint64_t floats_sent = 0;
  std::map<net::schema::TensorKind, uint64_t> tensors_sent;

 private:
  std::string address_;
  std::vector<Flying>& flying_;
  std::map<net::schema::TensorKind, std::vector<std::weak_ptr<void>>> held_;
};

/// One of those on their way, drawn by `rng`, arrives at its plane (that of replica `first` + i is
/// `planes[i]`), twice if so asked.
inline void deliver_one(std::vector<Flying>& flying,
                        const std::vector<std::shared_ptr<FlyingPlane>>& planes, uint32_t first,
                        plans::Rng& rng, bool twice) {
  std::swap(flying[rng.below(flying.size())], flying.back());
  const Flying next = std::move(flying.back());
  flying.pop_back();
  const uint32_t i = next.rows.key.receiver - first;
  ASSERT_EQ(next.address, planes[i]->address());
  for (int n = 0; n < (twice ? 2 : 1); ++n) {
    ASSERT_TRUE(planes[i]->arrives(next.rows.key, next.rows.payload)) << "a sender waits";
  }
}

}  // namespace skein::actors
