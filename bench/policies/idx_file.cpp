#include "bench/policies/idx_file.hpp"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace skein::bench {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 30;  // More is no data set of a benchmark.

absl::Status damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what, "; get the file anew, unpacked"));
}

uint32_t big_endian(const uint8_t* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

absl::StatusOr<IdxFile> read_idx(const std::string& path, uint64_t dimensions) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const auto bytes = static_cast<uint64_t>(file.tellg());
  const uint64_t header_bytes = 4 + 4 * dimensions;
  if (bytes < header_bytes) return damaged(path, absl::StrCat("only ", bytes, " bytes"));
  std::vector<uint8_t> header(header_bytes);
  file.seekg(0).read(reinterpret_cast<char*>(header.data()),
                     static_cast<std::streamsize>(header_bytes));
  if (!file || big_endian(header.data()) != (8u << 8 | dimensions)) {
    return damaged(path, absl::StrCat("not an IDX file of bytes with ", dimensions, " dimensions"));
  }
  IdxFile idx;
  uint64_t count = 1;
  for (uint64_t d = 0; d < dimensions; ++d) {
    idx.sizes.push_back(big_endian(header.data() + 4 + 4 * d));
    if (idx.sizes.back() == 0 || idx.sizes.back() > kBytesMax / count) {
      return damaged(path, absl::StrCat("dimension ", d, " is ", idx.sizes.back()));
    }
    count *= idx.sizes.back();
  }
  if (bytes != header_bytes + count) {
    return damaged(path, absl::StrCat(bytes, " bytes instead of ", header_bytes + count));
  }
  idx.values.resize(count);
  file.read(reinterpret_cast<char*>(idx.values.data()), static_cast<std::streamsize>(count));
  if (!file) return damaged(path, "cannot be read");
  return idx;
}

}  // namespace skein::bench
