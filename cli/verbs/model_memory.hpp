#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

struct MemoryNeed {
  std::string work;           // "drawing text with a context of 1024 tokens"
  int64_t bytes = 0;          // All of it.
  int64_t weights_bytes = 0;  // No option makes these of them smaller.
  std::string reduced_by;     // "a smaller --batch": this makes the rest smaller.
};

/// ResourceExhausted, in one line: there are `available_bytes`, too few. `where`: how many are
/// missing where, if there are several places; else empty.
absl::Status lacks_memory(const MemoryNeed& need, int64_t available_bytes,
                          const std::string& where);
/// That, if `available_bytes` of host memory are too few; 0: it is not
/// known how many there are.
absl::Status check_memory(const MemoryNeed& need, int64_t available_bytes);
/// The same with what this machine has available now.
absl::Status check_available_memory(const MemoryNeed& need);

}  // namespace skein::cli
