#include "gpu/cuda/nccl_group.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/group_memory.hpp"

namespace skein::gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A wait asks so often without a pause, which takes about as long as a small operation; then with
/// pauses that double up to the longest: a step waits for operations, nobody for the last
/// millisecond of what changes groups.
constexpr int kEagerPolls = 64;
constexpr std::chrono::microseconds kPauseFirst(20);
constexpr std::chrono::microseconds kPauseLongest(50);
constexpr std::chrono::microseconds kChangePauseLongest(1000);

/// Parents share nothing with children, as the parent's abort would end these. The options live as
/// long as the communicator: it may keep the name.
ncclConfig_t config_of(const DeviceGroup::Options& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = plans::kGroupChannelsMax;  // Plans count on it: each has buffers.
  config.splitShare = 0;
  config.shrinkShare = 0;
  config.commName = options.name.c_str();
  return config;
}

ncclDataType_t data_type(NumberType type) {
  return type == NumberType::kBfloat16 ? ncclBfloat16 : ncclFloat32;
}

}  // namespace

NcclGroup::NcclGroup(const NcclLibrary& nccl, CudaContext& context, const Options& options)
    : nccl_(nccl), context_(context), options_(options) {}

NcclGroup::~NcclGroup() { abort(); }

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::form(const NcclLibrary& nccl,
                                                           CudaContext& context,
                                                           const ncclUniqueId& id, int32_t rank,
                                                           int32_t rank_count,
                                                           const Options& options) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(nccl, context, options));  // Private.
  group->rank_ = rank;
  group->rank_count_ = rank_count;
  SKEIN_RETURN_IF_ERROR(context.use());
  SKEIN_RETURN_IF_ERROR(group->make_events());
  ncclConfig_t config = config_of(group->options_);
  group->is_in_call_ = true;
  const ncclResult_t begun = nccl.comm_init(&group->comm_, rank_count, id, rank, &config);
  SKEIN_RETURN_IF_ERROR(group->settle("forming", begun, options.form_timeout_seconds,
                                      *options.abort, kChangePauseLongest));
  return group;
}

absl::Status NcclGroup::make_events() {
  SKEIN_ASSIGN_OR_RETURN(begun_, Event::create());
  SKEIN_ASSIGN_OR_RETURN(queued_, Event::create());
  return absl::OkStatus();
}

absl::Status NcclGroup::all_reduce_sum(float* values, int64_t count, Start start) {
  return enqueue("all-reduce", start, [&] {
    return nccl_.all_reduce(values, values, static_cast<size_t>(count), ncclFloat32, ncclSum, comm_,
                            context_.communication());
  });
}

absl::Status NcclGroup::broadcast(float* values, int64_t count, int32_t root, Start start) {
  return enqueue("broadcast", start, [&] {
    return nccl_.broadcast(values, values, static_cast<size_t>(count), ncclFloat32, root, comm_,
                           context_.communication());
  });
}

absl::Status NcclGroup::exchange(std::span<const Sent> sent, std::span<const Received> received,
                                 Start start) {
  return enqueue("exchange", start, [&] {
    ncclResult_t first = nccl_.group_start();
    const auto note = [&first](ncclResult_t result) {
      if (first == ncclSuccess && result != ncclInProgress) first = result;
    };
    for (const Sent& each : sent) {
      note(nccl_.send(each.values.data(), static_cast<size_t>(each.count),
                      data_type(each.values.type()), each.to, comm_, context_.communication()));
    }
    for (const Received& each : received) {
      note(nccl_.recv(each.values.data(), static_cast<size_t>(each.count),
                      data_type(each.values.type()), each.from, comm_, context_.communication()));
    }
    const ncclResult_t ended = nccl_.group_end();  // Also after an error: it closes the bracket.
    return first == ncclSuccess ? ended : first;
  });
}

template <class Calls>
absl::Status NcclGroup::enqueue(const char* what, Start start, Calls calls) {
  SKEIN_RETURN_IF_ERROR(enter(what, {State::kFormed}));
  if (start == Start::kBehindCompute) {
    SKEIN_RETURN_IF_ERROR(order_behind(context_.communication(), context_.compute(), begun_));
  }
  is_in_call_ = true;
  SKEIN_RETURN_IF_ERROR(
      settle(what, calls(), options_.operation_timeout_seconds, *options_.abort, kPauseLongest));
  ++operations_;
  return cuda_status(cudaEventRecord(queued_.raw(), context_.communication()),
                     "cannot record an event");
}

absl::Status NcclGroup::wait() {
  SKEIN_RETURN_IF_ERROR(enter("wait", {State::kFormed}));
  cudaError_t device = cudaSuccess;
  const auto poll = [&] {
    const ncclResult_t error = async_error();
    if (error != ncclSuccess) return error;
    device = cudaEventQuery(queued_.raw());
    return device == cudaErrorNotReady ? ncclInProgress : ncclSuccess;
  };
  SKEIN_RETURN_IF_ERROR(settle_with("wait", poll, options_.operation_timeout_seconds,
                                    *options_.abort, kPauseLongest));
  if (device == cudaSuccess) return absl::OkStatus();
  return fail(cuda_status(device, subject("wait")));
}

absl::Status NcclGroup::order_compute_behind() {
  SKEIN_RETURN_IF_ERROR(enter("order", {State::kFormed}));
  return cuda_status(cudaStreamWaitEvent(context_.compute(), queued_.raw(), 0),
                     "cannot wait for an event");
}

absl::Status NcclGroup::revoke() {
  SKEIN_RETURN_IF_ERROR(enter("revoke", {State::kFormed, State::kFailed}));
  if (nccl_.comm_revoke == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NCCL ", nccl_.version, " cannot revoke"));
  }
  SKEIN_RETURN_IF_ERROR(check_ready("revoke"));
  const AbortSignal unused;  // The group's own may be why it is revoked.
  is_in_call_ = true;
  SKEIN_RETURN_IF_ERROR(settle("revoke", nccl_.comm_revoke(comm_, NCCL_REVOKE_DEFAULT),
                               options_.operation_timeout_seconds, unused, kChangePauseLongest));
  state_ = State::kRevoked;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> NcclGroup::split(int32_t color,
                                                              const Options& options) {
  SKEIN_RETURN_IF_ERROR(enter("split", {State::kFormed, State::kRevoked}));
  if (nccl_.comm_split == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NCCL ", nccl_.version, " cannot split"));
  }
  return make_child("split", options, [&](ncclComm_t* child, ncclConfig_t* config) {
    return nccl_.comm_split(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, rank_, child, config);
  });
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> NcclGroup::shrink(std::span<const int32_t> left,
                                                               Shrink how, const Options& options) {
  const bool is_lost = how == Shrink::kAfterLoss;
  SKEIN_RETURN_IF_ERROR(is_lost ? enter("shrink", {State::kFormed, State::kFailed})
                                : enter("shrink", {State::kFormed, State::kRevoked}));
  if (nccl_.comm_shrink == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NCCL ", nccl_.version, " cannot shrink"));
  }
  SKEIN_RETURN_IF_ERROR(check_ready("shrink"));
  std::vector<int> excluded(left.begin(), left.end());  // The library sorts it.
  if (excluded.empty()) return absl::InvalidArgumentError("a shrink without a rank that leaves");
  auto child = make_child("shrink", options, [&](ncclComm_t* made, ncclConfig_t* config) {
    return nccl_.comm_shrink(comm_, excluded.data(), static_cast<int>(excluded.size()), made,
                             config, is_lost ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
  });
  if (is_lost) abort();  // What is left of it, on this member.
  return child;
}

template <class Make>
absl::StatusOr<std::unique_ptr<DeviceGroup>> NcclGroup::make_child(const char* what,
                                                                   const Options& options,
                                                                   Make make) {
  std::unique_ptr<NcclGroup> child(new NcclGroup(nccl_, context_, options));  // Private.
  SKEIN_RETURN_IF_ERROR(child->make_events());
  ncclConfig_t config = config_of(child->options_);
  is_in_call_ = true;
  const absl::Status status =
      settle(what, make(&child->comm_, &config), options.form_timeout_seconds, *options.abort,
             kChangePauseLongest);
  if (!status.ok()) {
    // The library fills in the child's handle when the parent is done, be it late: only the
    // parent's abort ends that.
    abort();
    return status;
  }
  if (child->comm_ == nullptr) return nullptr;
  int rank = 0, rank_count = 0;
  if (nccl_.comm_user_rank(child->comm_, &rank) != ncclSuccess ||
      nccl_.comm_count(child->comm_, &rank_count) != ncclSuccess) {
    return absl::InternalError(absl::StrCat(subject(what), ": the new group has no ranks"));
  }
  child->rank_ = rank;
  child->rank_count_ = rank_count;
  return child;
}

absl::Status NcclGroup::close() {
  SKEIN_RETURN_IF_ERROR(enter("close", {State::kFormed, State::kRevoked}));
  if (state_ == State::kFormed) {  // What was revoked must not be finalized.
    is_in_call_ = true;
    SKEIN_RETURN_IF_ERROR(settle("close", nccl_.comm_finalize(comm_),
                                 options_.operation_timeout_seconds, *options_.abort,
                                 kChangePauseLongest));
  }
  const ncclResult_t ended = nccl_.comm_destroy(std::exchange(comm_, nullptr));
  state_ = State::kBroken;
  return ended == ncclSuccess ? absl::OkStatus() : to_status("close", ended);
}

absl::Status NcclGroup::enter(const char* what, std::initializer_list<State> states) {
  const bool is_wanted = std::find(states.begin(), states.end(), state_) != states.end();
  if (!is_wanted) {
    const char* why = state_ == State::kRevoked ? "was revoked" : "is broken";
    return absl::UnavailableError(absl::StrCat(subject(what), ": the group ", why));
  }
  return context_.use();
}

absl::Status NcclGroup::check_ready(const char* what) {
  const ncclResult_t error = async_error();
  if (is_in_call_ || error == ncclInProgress) {
    abort();
    return absl::UnavailableError(
        absl::StrCat(subject(what), ": the last call has not succeeded; form the group anew"));
  }
  return error == ncclSuccess ? absl::OkStatus() : fail_with(what, error);
}

absl::Status NcclGroup::settle(const char* what, ncclResult_t result, double timeout_seconds,
                               const AbortSignal& abort, std::chrono::microseconds pause_longest) {
  if (result != ncclSuccess && result != ncclInProgress) return fail_with(what, result);
  SKEIN_RETURN_IF_ERROR(settle_with(
      what, [this] { return async_error(); }, timeout_seconds, abort, pause_longest));
  is_in_call_ = false;
  return absl::OkStatus();
}

template <class Poll>
absl::Status NcclGroup::settle_with(const char* what, Poll poll, double timeout_seconds,
                                    const AbortSignal& abort,
                                    std::chrono::microseconds pause_longest) {
  const Clock::time_point start = Clock::now();
  const std::chrono::duration<double> limit(timeout_seconds);
  std::chrono::microseconds pause = kPauseFirst;
  for (int polls = 1;; ++polls) {
    const ncclResult_t result = poll();
    if (result == ncclSuccess) return absl::OkStatus();
    if (result != ncclInProgress) return fail_with(what, result);
    if (polls <= kEagerPolls) continue;
    if (abort.wait_for(pause)) {
      return fail(absl::UnavailableError(absl::StrCat(subject(what), ": aborted")));
    }
    if (Clock::now() - start > limit) {
      return fail(absl::DeadlineExceededError(
          absl::StrCat(subject(what), ": not done within ", timeout_seconds,
                       " s; a member is gone, or busy elsewhere")));
    }
    pause = std::min(2 * pause, pause_longest);
  }
}

ncclResult_t NcclGroup::async_error() const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &error);
  return asked == ncclSuccess ? error : asked;
}

absl::Status NcclGroup::fail(absl::Status why) {
  state_ = State::kFailed;
  if (options_.on_failure == OnFailure::kAbort) abort();
  return why;
}

absl::Status NcclGroup::fail_with(const char* what, ncclResult_t result) {
  absl::Status why = to_status(what, result);
  abort();
  return why;
}

absl::Status NcclGroup::to_status(const char* what, ncclResult_t result) const {
  const char* last = nccl_.get_last_error(comm_);
  const std::string text =
      absl::StrCat(subject(what), ": ", nccl_.get_error_string(result),
                   last != nullptr && *last != 0 ? "; " : "", last != nullptr ? last : "");
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:  // Mostly a connection that broke.
      return absl::UnavailableError(text);
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

std::string NcclGroup::subject(const char* what) const {
  return absl::StrCat("NCCL ", what, " in ", options_.name, ", rank ", rank_, " of ", rank_count_);
}

void NcclGroup::abort() {
  state_ = State::kBroken;
  if (comm_ == nullptr) return;
  (void)context_.use();
  (void)nccl_.comm_abort(std::exchange(comm_, nullptr));
}

}  // namespace skein::gpu
