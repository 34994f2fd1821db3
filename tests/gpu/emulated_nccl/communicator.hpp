#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../emulated_cuda/stream.hpp"
#include "segment.hpp"

/// A communicator of NCCL's stand-in, with a thread that carries out what is asked for in order.
/// Non-blocking only. Calls are made by one thread, as the real library demands.
struct ncclComm {
 public:
  struct Transfer {
    char* values = nullptr;
    size_t bytes = 0;
    int peer = 0;
    bool is_sent = false;
    size_t done = 0;
  };

  ncclComm(std::string name, int rank, int rank_count);
  /// Ends what runs, however far it is.
  ~ncclComm();

  void init();
  ncclResult_t all_reduce(const float* from, float* to, size_t count, cudaStream_t stream);
  ncclResult_t broadcast(const float* from, float* to, size_t count, int root, cudaStream_t stream);
  ncclResult_t exchange(std::vector<Transfer> transfers, cudaStream_t stream);
  ncclResult_t split(int color, ncclComm** child);
  ncclResult_t shrink(std::vector<int> left, bool stops, ncclComm** child);
  ncclResult_t revoke();
  ncclResult_t finalize();
  /// Waits until all that was asked for has ended, whether it ever does or not.
  void drain();

  ncclResult_t async_error();
  /// As the real library, which wants each call to have succeeded before the next.
  ncclResult_t ensure_ready();
  int rank() const { return rank_; }
  int rank_count() const { return rank_count_; }

 private:
  using Operation = std::function<emulated::Ended(const std::function<bool()>& is_stopped)>;
  void push(std::function<void()> task);
  ncclResult_t queue(cudaStream_t stream, Operation operation);
  /// Runs on our thread; the state is `ncclInProgress` until it ends.
  ncclResult_t manage(std::function<ncclResult_t()> task);
  ncclResult_t join(const std::function<bool()>& is_stopped);
  emulated::Ended meet(std::atomic<uint64_t> emulated::Member::*counter, uint64_t count,
                       const std::function<bool()>& is_stopped) const;
  void thread_main();

  const std::string name_;
  const int rank_;
  const int rank_count_;
  emulated::Segment segment_;
  std::atomic<int> state_{ncclInProgress};  // How the last call goes.
  /// What the connections have come to. It stays, as in the library: no call succeeds behind it.
  std::atomic<int> connections_{ncclSuccess};
  std::atomic<int> polls_until_queued_{0};
  std::atomic<bool> aborts_{false};
  std::atomic<bool> is_revoked_{false};
  std::atomic<uint64_t> queued_{0};   // Operations.
  std::atomic<uint64_t> stopped_{0};  // Of them, so many from the first on are not carried out.
  uint64_t meetings_ = 0;             // Meetings that the thread has come to.
  uint64_t managed_ = 0;
  int splits_ = 0;
  std::map<std::vector<int>, int> shrinks_;  // By who left.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_idle_ = true;
  bool ends_ = false;
  std::thread thread_;
};

/// What `ncclGetLastError` says.
void set_last_error(const std::string& text);
