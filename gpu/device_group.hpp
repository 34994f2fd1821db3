#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/abort_signal.hpp"
#include "gpu/numbers.hpp"

namespace skein::gpu {

/// Devices that pass what they have in memory to each other, without the host: ranks 0 to
/// `rank_count` - 1. One thread at a time; only `Options::abort` is for others.
///
/// Operations are for all members, in the same order, and wait inside for the slowest. They run one
/// after the other on the device's communication stream. An operation returns when it is queued;
/// `wait` says how it ended. Groups that share a device must take turns in an order that all
/// members agree on (`plans/collectives/collective_order.hpp`), or they wait for each other for
/// ever.
///
/// After an error, a time-out or an abort the group is broken: what runs in it on this member has
/// been stopped, and every call fails. With `OnFailure::kKeep` it still runs after a time-out or an
/// abort, and `revoke` or `shrink` follow at once, or the destructor, which stops it. Both are
/// Unavailable, and the group is stopped, where the last operation was not queued, or the library
/// itself has found that a member is gone: a new group is made from a new id then.
/// Errors: Unavailable (a member is gone, or the group was aborted), DeadlineExceeded (a time-out),
/// InvalidArgument, Internal; all name the group and the rank.
class DeviceGroup {
 public:
  enum class OnFailure { kAbort, kKeep };
  struct Options {
    std::string name;  // The name that people read.
    double form_timeout_seconds = 60;
    double operation_timeout_seconds = 60;
    OnFailure on_failure = OnFailure::kAbort;
    std::shared_ptr<AbortSignal> abort = std::make_shared<AbortSignal>();
  };
  /// What the device does on its own, besides groups, when an operation starts.
  enum class Start {
    kBehindCompute,  // Operation waits for all ops that the device has begun.
    kNow,            // Values are complete already.
  };

  virtual ~DeviceGroup() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t rank_count() const = 0;
  /// Nothing can be done in it any more; with `kKeep`, nothing but to revoke or shrink it.
  virtual bool is_broken() const = 0;
  virtual std::shared_ptr<AbortSignal> abort_signal() const = 0;  // `Options::abort`
  /// That were queued. Equal on members that have done the same.
  virtual uint64_t operations() const = 0;

  /// values [count] := their sum over the members, the same bits on all. Device memory.
  virtual absl::Status all_reduce_sum(float* values, int64_t count, Start start) = 0;
  /// values [count] := those of rank `root`.
  virtual absl::Status broadcast(float* values, int64_t count, int32_t root, Start start) = 0;
  /// Between pairs: each one sent is received by the other in a call of its own, and counts and
  /// types agree. All of a call are under way at once, so two members may send to each other.
  struct Sent {
    ConstNumbers values;
    int64_t count = 0;
    int32_t to = 0;
  };
  struct Received {
    Numbers values;
    int64_t count = 0;
    int32_t from = 0;
  };
  virtual absl::Status exchange(std::span<const Sent> sent, std::span<const Received> received,
                                Start start) = 0;
  /// Until all that is queued has ended.
  virtual absl::Status wait() = 0;
  /// What the device's ops begin from now on sees the results of what is queued.
  virtual absl::Status order_compute_behind() = 0;

  /// Stops what runs, without giving the group up: it can be split, shrunk or closed afterwards.
  /// Needs no other member. Unimplemented if the library has no such function, as `split`,
  /// `shrink`.
  virtual absl::Status revoke() = 0;
  /// A split or shrink that fails breaks the parent.
  ///
  /// A group of the members that give the same `color` >= 0, in the order of their ranks; null for
  /// a negative one. All members call it, with nothing under way.
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> split(int32_t color,
                                                             const Options& options) = 0;
  enum class Shrink {
    kHealthy,    // Nothing is under way.
    kAfterLoss,  // Stop what is under way first; the parent is broken then.
  };
  /// A group without the ranks `left`, in the order of the others. Only those who stay call it.
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> shrink(std::span<const int32_t> left,
                                                              Shrink how,
                                                              const Options& options) = 0;
  /// Ends a healthy group, which all members do; the destructor aborts. The group is broken then.
  virtual absl::Status close() = 0;
};

/// Makes groups of which one device is a member. Thread-safe.
class DeviceGroups {
 public:
  struct Info {
    std::string library;  // "nccl 2.28.9"; members need the same.
    /// Names the machine and the device. The library refuses two members with the same.
    std::string place;
    bool can_split = false, can_shrink = false, can_revoke = false;
  };
  virtual ~DeviceGroups() = default;
  virtual const Info& info() const = 0;

  /// By which the members of one new group find each other: bytes, made by one of them. They say
  /// where it listens, and whoever has them may join, so they travel on authenticated links only.
  virtual absl::StatusOr<std::string> make_id() = 0;
  /// Waits until all members have called it. The device must outlive the group.
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> form(
      const std::string& id, int32_t rank, int32_t rank_count,
      const DeviceGroup::Options& options) = 0;
};

}  // namespace skein::gpu
