#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/files/mapped_file.hpp"

namespace skein::gpu {

/// Tokens [0, count) of one to four bytes each inside a mapped file.
struct TokenArray {
  std::shared_ptr<const MappedFile> file;
  const std::byte* data = nullptr;
  int32_t width = 1;  // Bytes of a token: 1, 2 or 4, little-endian.
  int64_t count = 0;

  int32_t at(int64_t index) const;
};

/// A text file: every byte is a token.
absl::StatusOr<TokenArray> open_text(const std::string& path);
/// llm.c's file (1 KiB header, magic 20240520 with 16-bit or 20240801 with 32-bit tokens) or
/// nanoGPT's (16-bit tokens and nothing else), told apart by the magic.
/// DataLoss   if the size is odd, or not what the header says, or the file begins as text.
absl::StatusOr<TokenArray> open_tokens(const std::string& path);

/// Path of the King James Bible as plain text, one verse a line; made from Debian's `bible` program
/// on first use and cached under $XDG_CACHE_HOME or ~/.cache.
/// NotFound   if the program is missing: names the package.
absl::StatusOr<std::string> kjv_path();

}  // namespace skein::gpu
