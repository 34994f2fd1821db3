#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::plans {

/// A file of a checkpoint, as its writer has synced it.
struct SavedFile {
  std::string name;  // Relative to the checkpoint's folder.
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  std::vector<std::string> tensors;
  bool operator==(const SavedFile&) const = default;
};

}  // namespace skein::plans
