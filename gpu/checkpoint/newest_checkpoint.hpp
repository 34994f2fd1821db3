#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace skein::gpu {

/// Calls `read` with the folder that `path` means: itself, or, of a checkpoint, a link to one or a
/// run folder, the newest checkpoint there, by a name that no link changes. Where a run deletes
/// that one meanwhile, as it has a newer one, begins anew with the newer one. Errors of `read`.
absl::Status read_newest(const std::string& path,
                         const std::function<absl::Status(const std::string&)>& read);

}  // namespace skein::gpu
