#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/statusor.h"

namespace skein::gpu {

/// NCCL's functions, found at run time: the library is 218 MB, and a machine with one GPU needs
/// none. It stays loaded until the process ends.
struct NcclLibrary {
  /// Looks for libnccl.so.2 where the loader does, then in the toolkit's usual folder; the
  /// environment's SKEIN_NCCL_LIBRARY names another file.
  /// Unavailable, in one line, if it is not there or lacks a function that groups need.
  static absl::StatusOr<const NcclLibrary*> load();

  std::string version;  // "2.28.9"
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommCount) comm_count = nullptr;
  decltype(&ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;

  // Null in older libraries.
  decltype(&ncclCommSplit) comm_split = nullptr;    // From 2.18.
  decltype(&ncclCommShrink) comm_shrink = nullptr;  // From 2.27.
  decltype(&ncclCommRevoke) comm_revoke = nullptr;  // From 2.28.
};

}  // namespace skein::gpu
