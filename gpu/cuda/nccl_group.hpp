#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/nccl_library.hpp"
#include "gpu/device_group.hpp"

namespace skein::gpu {

/// A communicator of NCCL that never blocks: its calls return at once, and are waited for here by
/// asking how they go, so that a time-out or an abort can end every wait. Whoever waits also
/// aborts: the library frees a communicator with its abort, which no other thread may do under us.
class NcclGroup final : public DeviceGroup {
 public:
  static absl::StatusOr<std::unique_ptr<NcclGroup>> form(const NcclLibrary& nccl,
                                                         CudaContext& context,
                                                         const ncclUniqueId& id, int32_t rank,
                                                         int32_t rank_count,
                                                         const Options& options);
  ~NcclGroup() override;

  int32_t rank() const override { return rank_; }
  int32_t rank_count() const override { return rank_count_; }
  bool is_broken() const override {
    return state_ == State::kFailed || state_ == State::kBroken || options_.abort->is_raised();
  }
  std::shared_ptr<AbortSignal> abort_signal() const override { return options_.abort; }
  uint64_t operations() const override { return operations_; }

  absl::Status all_reduce_sum(float* values, int64_t count, Start start) override;
  absl::Status broadcast(float* values, int64_t count, int32_t root, Start start) override;
  absl::Status exchange(std::span<const Sent> sent, std::span<const Received> received,
                        Start start) override;
  absl::Status wait() override;
  absl::Status order_compute_behind() override;

  absl::Status revoke() override;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> split(int32_t color,
                                                     const Options& options) override;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> shrink(std::span<const int32_t> left, Shrink how,
                                                      const Options& options) override;
  absl::Status close() override;

 private:
  enum class State { kFormed, kRevoked, kFailed, kBroken };

  NcclGroup(const NcclLibrary& nccl, CudaContext& context, const Options& options);
  absl::Status make_events();

  /// Fails unless the group is in one of these states. Makes the GPU that of the calling thread.
  absl::Status enter(const char* what, std::initializer_list<State> states);
  /// Makes the calls of one operation and waits until the library has queued it.
  template <class Calls>
  absl::Status enqueue(const char* what, Start start, Calls calls);
  /// Fails, and breaks the group, unless the library has succeeded with its last call. It may be
  /// asked for nothing else then but to abort: it touches what the call still uses.
  absl::Status check_ready(const char* what);
  /// Waits until the library is done with a call that returned `result`; breaks the group if it
  /// fails, or takes longer.
  absl::Status settle(const char* what, ncclResult_t result, double timeout_seconds,
                      const AbortSignal& abort, std::chrono::microseconds pause_longest);
  /// Waits until `poll` returns something else than `ncclInProgress`; as `settle`.
  template <class Poll>
  absl::Status settle_with(const char* what, Poll poll, double timeout_seconds,
                           const AbortSignal& abort, std::chrono::microseconds pause_longest);
  /// `make` fills in the communicator of the child, a while after it returns.
  template <class Make>
  absl::StatusOr<std::unique_ptr<DeviceGroup>> make_child(const char* what, const Options& options,
                                                          Make make);
  ncclResult_t async_error() const;
  absl::Status fail(absl::Status why);
  /// What the library has found ends the group also where a failure keeps it: the error stays in
  /// it, so that whatever would go on from it fails.
  absl::Status fail_with(const char* what, ncclResult_t result);
  absl::Status to_status(const char* what, ncclResult_t result) const;
  std::string subject(const char* what) const;
  /// Stops what runs and frees the communicator.
  void abort();

  const NcclLibrary& nccl_;
  CudaContext& context_;
  const Options options_;
  int32_t rank_ = 0;
  int32_t rank_count_ = 0;
  ncclComm_t comm_ = nullptr;
  State state_ = State::kFormed;
  bool is_in_call_ = false;  // The library has not succeeded with the last one.
  uint64_t operations_ = 0;
  Event begun_;   // What compute has begun when an operation starts.
  Event queued_;  // Behind the last operation.
};

}  // namespace skein::gpu
