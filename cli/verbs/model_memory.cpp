#include "cli/verbs/model_memory.hpp"

#include "absl/strings/str_cat.h"
#include "cli/report/number_text.hpp"
#include "gpu/host/machine_memory.hpp"

namespace skein::cli {

absl::Status lacks_memory(const MemoryNeed& need, int64_t available_bytes,
                          const std::string& where) {
  const bool is_reducible = need.weights_bytes <= available_bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      need.work, " takes ", bytes_text(need.bytes), " of memory, ", bytes_text(need.weights_bytes),
      " of it for the model, and ", bytes_text(available_bytes), " are available",
      where.empty() ? "" : ", ", where, ": ",
      is_reducible ? absl::StrCat("give ", need.reduced_by) : "use a machine with more memory"));
}

absl::Status check_memory(const MemoryNeed& need, int64_t available_bytes) {
  if (available_bytes == 0 || need.bytes <= available_bytes) return absl::OkStatus();
  return lacks_memory(need, available_bytes, "");
}

absl::Status check_available_memory(const MemoryNeed& need) {
  return check_memory(need, gpu::available_memory_bytes());
}

}  // namespace skein::cli
