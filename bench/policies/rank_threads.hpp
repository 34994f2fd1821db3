#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::bench {

/// What came for one rank, by sender. Thread-safe.
class RankMail {
 public:
  void put(uint32_t from, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[from].emplace_back(bytes.begin(), bytes.end());
    has_come_.notify_one();
  }
  absl::Status take(uint32_t from, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& box = boxes_[from];
    has_come_.wait(lock, [&] { return !box.empty(); });
    const std::vector<std::byte> message = std::move(box.front());
    box.pop_front();
    if (message.size() != bytes.size()) return absl::UnavailableError("another size came");
    std::memcpy(bytes.data(), message.data(), message.size());
    return absl::OkStatus();
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_come_;
  std::map<uint32_t, std::deque<std::vector<std::byte>>> boxes_;
};

/// Ranks that are threads of one process. One thread's.
class RankThread final : public net::Exchange {
 public:
  RankThread(std::span<RankMail> mail, uint32_t rank) : mail_(mail), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return static_cast<uint32_t>(mail_.size()); }
  absl::Status move(const net::Outgoing& out, const net::Incoming& in) override {
    if (!out.bytes.empty()) mail_[out.to].put(rank_, out.bytes);
    return in.bytes.empty() ? absl::OkStatus() : mail_[rank_].take(in.from, in.bytes);
  }

 private:
  std::span<RankMail> mail_;
  uint32_t rank_;
};

}  // namespace skein::bench
