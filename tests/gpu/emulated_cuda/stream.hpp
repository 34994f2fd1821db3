#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace emulated {

/// What a `cudaStream_t` of the emulated GPU points to; NCCL's stand-in, another library, knows it
/// too. The GPU's own work has ended when its call returns. Only what NCCL queues takes time: it
/// gets a ticket, runs when all before it have ended, and ends in turn.
struct Stream {
  std::atomic<uint64_t> begun{0};  // Tickets given out.
  std::atomic<uint64_t> ended{0};
};

/// What a `cudaEvent_t` points to.
struct Event {
  Stream* stream = nullptr;
  uint64_t ticket = 0;

  bool has_ended() const { return stream == nullptr || stream->ended.load() >= ticket; }
  void wait() const {
    while (!has_ended()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

}  // namespace emulated
