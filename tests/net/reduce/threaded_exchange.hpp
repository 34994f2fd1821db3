#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// Mail boxes between the ranks of one group, in memory. Thread-safe.
class MailBoxes {
 public:
  using Bytes = std::vector<std::byte>;

  void put(uint32_t from, uint32_t to, std::span<const std::byte> bytes) {
    std::lock_guard lock(mutex_);
    bytes_sent_[from] += bytes.size();
    boxes_[{from, to}].emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }

  absl::Status take(uint32_t from, uint32_t to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    std::deque<Bytes>& box = boxes_[{from, to}];
    if (!changed_.wait_for(lock, std::chrono::seconds(20),
                           [&] { return is_closed_ || !box.empty(); })) {
      return absl::DeadlineExceededError("nothing came");
    }
    if (box.empty()) return absl::UnavailableError("the group was aborted");
    const Bytes message = std::move(box.front());
    box.pop_front();
    if (message.size() != bytes.size()) {
      return absl::UnavailableError(
          absl::StrCat(message.size(), " bytes came instead of ", bytes.size()));
    }
    std::memcpy(bytes.data(), message.data(), message.size());
    return absl::OkStatus();
  }

  void close() {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

  bool is_empty() const {
    for (const auto& [pair, box] : boxes_) {
      if (!box.empty()) return false;
    }
    return true;
  }
  size_t bytes_sent(uint32_t rank) { return bytes_sent_[rank]; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Bytes>> boxes_;
  std::map<uint32_t, size_t> bytes_sent_;
  bool is_closed_ = false;
};

class ThreadedExchange final : public Exchange {
 public:
  ThreadedExchange(MailBoxes& boxes, uint32_t rank, uint32_t rank_count)
      : boxes_(boxes), rank_(rank), rank_count_(rank_count) {}

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return rank_count_; }
  absl::Status move(const Outgoing& out, const Incoming& in) override {
    if (moves_left == 0) return absl::UnavailableError("a link broke");
    --moves_left;
    EXPECT_LT(out.to, rank_count_);
    EXPECT_LT(in.from, rank_count_);
    if (!out.bytes.empty()) boxes_.put(rank_, out.to, out.bytes);
    return in.bytes.empty() ? absl::OkStatus() : boxes_.take(in.from, rank_, in.bytes);
  }

  size_t moves_left = SIZE_MAX;  // The one after these fails.

 private:
  MailBoxes& boxes_;
  uint32_t rank_;
  uint32_t rank_count_;
};

using Call = std::function<absl::Status(ThreadedExchange&)>;

/// Runs `call` as every rank, each on its thread, and gives what they returned. A rank that fails
/// closes the boxes, as an abort does.
inline std::vector<absl::Status> run_ranks(uint32_t rank_count, const Call& call,
                                           MailBoxes* boxes = nullptr) {
  MailBoxes own;
  MailBoxes& used = boxes != nullptr ? *boxes : own;
  std::vector<absl::Status> results(rank_count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadedExchange exchange(used, rank, rank_count);
      results[rank] = call(exchange);
      if (!results[rank].ok()) used.close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// `values[rank]` is reduced in place by `reduce(exchange, values[rank])`; all must succeed and no
/// message may be left over.
template <class Reduce>
void reduce_all(std::vector<std::vector<float>>& values, Reduce reduce) {
  MailBoxes boxes;
  const auto results = run_ranks(
      static_cast<uint32_t>(values.size()),
      [&](ThreadedExchange& exchange) {
        return reduce(static_cast<Exchange&>(exchange), values[exchange.rank()]);
      },
      &boxes);
  for (const absl::Status& each : results) ASSERT_TRUE(each.ok()) << each;
  EXPECT_TRUE(boxes.is_empty());
}

}  // namespace skein::net
