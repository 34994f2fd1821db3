#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace emulated {

constexpr int kChunkFloats = 16 << 10;
constexpr int kMailBytes = 8 << 10;

/// One rank's part of a group's shared memory, which begins as zeros.
struct alignas(64) Member {
  std::atomic<uint32_t> joined;
  std::atomic<int32_t> process;
  char place[128];                // Host and device.
  std::atomic<uint64_t> arrived;  // At so many meetings in operations,
  std::atomic<uint64_t> managed;  // and in splits.
  std::atomic<int32_t> color;
  float chunk[kChunkFloats];
};

/// Values on their way from one rank to another.
struct alignas(64) Mailbox {
  std::atomic<uint64_t> written, read;
  uint64_t bytes;
  char values[kMailBytes];
};

/// Why a wait ended.
enum class Ended { kDone, kStopped, kMemberLost };

/// Shared memory by which the ranks of one group meet, threads or processes.
class Segment {
 public:
  ~Segment() { close(); }
  /// False, with errno, if there is no shared memory.
  bool open(const std::string& name, int rank_count);
  void close();
  /// New ones of the name do not find it any more.
  void hide();

  Member& member(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  int rank_count() const { return rank_count_; }

  /// Until `is_done`, or `is_stopped`, or a process that has joined is gone and
  /// EMULATED_NCCL_NOTICES_DEATH is set: over NVLink nobody notices, over sockets one does.
  Ended wait(const std::function<bool()>& is_done, const std::function<bool()>& is_stopped) const;

 private:
  bool has_lost_member() const;

  std::string name_;
  int rank_count_ = 0;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
};

}  // namespace emulated
