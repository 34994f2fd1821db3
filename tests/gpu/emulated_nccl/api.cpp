// The calls of NCCL that the plugin makes, between threads and processes of one machine. What it
// cannot show: speed, real networks, and what the library really does when a member is gone.

#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>

#include "communicator.hpp"

namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};
LastError& last_error() {
  static LastError only;
  return only;
}

/// The transfers between ncclGroupStart and ncclGroupEnd, of one communicator.
struct Bracket {
  bool is_open = false;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<ncclComm::Transfer> transfers;
};
Bracket& bracket() {
  thread_local Bracket own;
  return own;
}

/// Bytes of a number; 0: the stand-in does not know the type.
size_t bytes_of(ncclDataType_t type) {
  if (type == ncclFloat32) return sizeof(float);
  return type == ncclBfloat16 ? sizeof(uint16_t) : 0;
}

ncclResult_t add_transfer(ncclComm::Transfer transfer, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  Bracket& open = bracket();
  transfer.bytes *= bytes_of(type);
  const bool is_known = transfer.peer >= 0 && transfer.peer < comm->rank_count();
  if (bytes_of(type) == 0 || !is_known || (open.comm != nullptr && open.comm != comm)) {
    set_last_error("a transfer that the stand-in does not know");
    return ncclInvalidArgument;
  }
  if (!open.is_open) return comm->exchange({transfer}, stream);
  open.comm = comm;
  open.stream = stream;
  open.transfers.push_back(transfer);
  return ncclSuccess;
}

/// False: it blocks, or may take any number of channels, each of which has buffers on the device.
bool is_supported(const ncclConfig_t* config) {
  if (config != nullptr && config->blocking == 0 && config->maxCTAs > 0) return true;
  set_last_error("the stand-in has non-blocking communicators with a limit of channels only");
  return false;
}

}  // namespace

void set_last_error(const std::string& text) {
  std::lock_guard lock(last_error().mutex);
  last_error().text = text;
}

#define SHOWN extern "C" __attribute__((visibility("default")))

SHOWN ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

SHOWN ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint32_t> made{0};
  std::random_device random;
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "%d-%u-%08x%08x", getpid(), ++made, random(),
                random());
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int rank_count, ncclUniqueId id,
                                          int rank, ncclConfig_t* config) {
  if (!is_supported(config) || rank < 0 || rank >= rank_count) return ncclInvalidArgument;
  *comm = std::make_unique<ncclComm>(std::string(id.internal), rank, rank_count).release();
  (*comm)->init();
  return ncclInProgress;
}

SHOWN ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->async_error();
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->finalize(); }

SHOWN ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->drain();
  std::unique_ptr<ncclComm>{comm};
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_ptr<ncclComm>{comm};
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommRevoke(ncclComm_t comm, int) { return comm->revoke(); }

SHOWN ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* made,
                                 ncclConfig_t* config) {
  return is_supported(config) ? comm->split(color, made) : ncclInvalidArgument;
}

SHOWN ncclResult_t ncclCommShrink(ncclComm_t comm, int* left, int count, ncclComm_t* made,
                                  ncclConfig_t* config, int flags) {
  if (!is_supported(config) || count <= 0) return ncclInvalidArgument;
  return comm->shrink({left, left + count}, (flags & NCCL_SHRINK_ABORT) != 0, made);
}

SHOWN ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->rank_count();
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank();
  return ncclSuccess;
}

SHOWN ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32 || op != ncclSum) return ncclInvalidArgument;
  return comm->all_reduce(static_cast<const float*>(from), static_cast<float*>(to), count, stream);
}

SHOWN ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type,
                                 int root, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32 || root < 0 || root >= comm->rank_count()) return ncclInvalidArgument;
  return comm->broadcast(static_cast<const float*>(from), static_cast<float*>(to), count, root,
                         stream);
}

SHOWN ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream) {
  auto* values = const_cast<char*>(static_cast<const char*>(from));  // Only read.
  return add_transfer({values, count, peer, true, 0}, type, comm, stream);
}

SHOWN ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream) {
  return add_transfer({static_cast<char*>(to), count, peer, false, 0}, type, comm, stream);
}

SHOWN ncclResult_t ncclGroupStart() {
  bracket() = {};
  bracket().is_open = true;
  return ncclSuccess;
}

SHOWN ncclResult_t ncclGroupEnd() {
  Bracket closed = std::exchange(bracket(), {});
  if (closed.comm == nullptr) return ncclSuccess;
  return closed.comm->exchange(std::move(closed.transfers), closed.stream);
}

SHOWN const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "internal error";
  }
}

SHOWN const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string copy;
  std::lock_guard lock(last_error().mutex);
  copy = last_error().text;
  return copy.c_str();
}
