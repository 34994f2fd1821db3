#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace skein::gpu {

/// Replaces `path` by a file with these contents: written under a temporary name in the same
/// folder, synced, renamed, and the folder synced. If that fails, what was there before stays, or,
/// where the last sync has failed, the new file is there as a whole.
/// ResourceExhausted for a full disk, Unavailable otherwise, with the path and the reason.
absl::Status write_durably(const std::string& path, std::string_view contents);
/// The same from pieces, one after the other.
absl::Status write_durably(const std::string& path,
                           const std::vector<std::span<const std::byte>>& pieces);

/// Syncs a folder, so that renames in it are on disk.
absl::Status sync_folder(const std::string& folder);

/// For tests: the n-th following write, sync or rename (counted from 1) fails, and all after it. 0
/// turns that off. Calls are counted in this process only.
void fail_file_operation(int64_t n);
/// Shows one operation to who watches, and counts it; its error if it is to fail. Call it before
/// the operation. Only deletions are shown and not counted (`note_file_operation`).
absl::Status count_file_operation(const std::string& path, const char* what);

/// For tests: called before each operation ("write", "sync", "rename", "delete") on a path. What
/// lies there then is what a process leaves that dies at this place. Null: nobody looks. Set it
/// while nobody writes.
using FileOperationWatch = std::function<void(const std::string& path, const char* what)>;
void watch_file_operations(FileOperationWatch watch);
/// Shows one operation to who watches.
void note_file_operation(const std::string& path, const char* what);

}  // namespace skein::gpu
