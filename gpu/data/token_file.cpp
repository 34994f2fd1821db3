#include "gpu/data/token_file.hpp"

#include <array>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "plans/base/readable_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr uint64_t kHeaderBytes = 256 * 4;
constexpr int32_t kMagic16 = 20240520;
constexpr int32_t kMagic32 = 20240801;
/// What of a file is looked at for whether it is text.
constexpr size_t kTextBytes = 4096;
/// Fewer may look like text by chance.
constexpr size_t kTextBytesMin = 16;

bool begins_as_text(const MappedFile& file) {
  if (file.bytes() < kTextBytesMin) return false;
  const bool is_cut = file.bytes() > kTextBytes;
  const std::string_view begin(reinterpret_cast<const char*>(file.data()),
                               is_cut ? kTextBytes : file.bytes());
  return plans::looks_like_text(begin, is_cut);
}

}  // namespace

int32_t TokenArray::at(int64_t index) const {
  uint32_t value = 0;  // Little-endian, like every machine that is supported.
  std::memcpy(&value, data + index * width, static_cast<size_t>(width));
  return static_cast<int32_t>(value);
}

absl::StatusOr<TokenArray> open_text(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  return TokenArray{file, file->data(), 1, static_cast<int64_t>(file->bytes())};
}

absl::StatusOr<TokenArray> open_tokens(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  std::array<int32_t, 3> header{};
  if (file->bytes() >= sizeof(header)) std::memcpy(header.data(), file->data(), sizeof(header));
  const bool is_llmc = header[0] == kMagic16 || header[0] == kMagic32;
  if (is_llmc) {
    const int32_t width = header[0] == kMagic16 ? 2 : 4;
    const int32_t version = header[0] == kMagic16 ? 1 : 7;
    const uint64_t expected = kHeaderBytes + static_cast<uint64_t>(header[2]) * width;
    if (header[1] != version || header[2] < 0 || file->bytes() != expected) {
      return absl::DataLossError(absl::StrCat(path, ": its header says version ", header[1],
                                              " and ", header[2], " tokens, which is ", expected,
                                              " bytes, but the file has ", file->bytes(),
                                              "; it is truncated or of another version"));
    }
    return TokenArray{file, file->data() + kHeaderBytes, width, header[2]};
  }
  if (begins_as_text(*file)) {
    return absl::DataLossError(absl::StrCat(path,
                                            " is text and no token file; prepare it with "
                                            "skein-prepare, or give data.dataset = \"text\""));
  }
  if (file->bytes() % 2 != 0) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->bytes(),
                                            " bytes, which is no whole number of 16-bit tokens; "
                                            "it is truncated, or not a token file"));
  }
  return TokenArray{file, file->data(), 2, static_cast<int64_t>(file->bytes() / 2)};
}

}  // namespace skein::gpu
