#include "gpu/cuda/nccl_library.hpp"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/shared_library.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Sets `function` to the library's of that name; false if it has none.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<NcclLibrary> open() {
  SKEIN_ASSIGN_OR_RETURN(void* library,
                         open_shared_library("NCCL", "libnccl.so.2", "SKEIN_NCCL_LIBRARY"));
  NcclLibrary nccl;
  const bool is_whole =
      find(library, "ncclGetVersion", nccl.get_version) &&
      find(library, "ncclGetUniqueId", nccl.get_unique_id) &&
      find(library, "ncclCommInitRankConfig", nccl.comm_init) &&
      find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error) &&
      find(library, "ncclCommFinalize", nccl.comm_finalize) &&
      find(library, "ncclCommDestroy", nccl.comm_destroy) &&
      find(library, "ncclCommAbort", nccl.comm_abort) &&
      find(library, "ncclCommCount", nccl.comm_count) &&
      find(library, "ncclCommUserRank", nccl.comm_user_rank) &&
      find(library, "ncclAllReduce", nccl.all_reduce) &&
      find(library, "ncclBroadcast", nccl.broadcast) && find(library, "ncclSend", nccl.send) &&
      find(library, "ncclRecv", nccl.recv) && find(library, "ncclGroupStart", nccl.group_start) &&
      find(library, "ncclGroupEnd", nccl.group_end) &&
      find(library, "ncclGetErrorString", nccl.get_error_string) &&
      find(library, "ncclGetLastError", nccl.get_last_error);
  int version = 0;
  if (!is_whole || nccl.get_version(&version) != ncclSuccess) {
    return absl::UnavailableError(
        "NCCL here is too old: its groups cannot be formed without blocking; 2.14 is the least");
  }
  nccl.version = absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  find(library, "ncclCommSplit", nccl.comm_split);
  find(library, "ncclCommShrink", nccl.comm_shrink);
  find(library, "ncclCommRevoke", nccl.comm_revoke);
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::load() {
  static const absl::StatusOr<NcclLibrary> library = open();
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace skein::gpu
