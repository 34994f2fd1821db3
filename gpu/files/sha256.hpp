#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace skein::gpu {

/// SHA-256 (FIPS 180-4) as 64 hexadecimal digits in lower case: by it files that others have made
/// are told apart. Our own files have the faster `crc32c`. Some 5 ns a byte.
std::string sha256(std::span<const std::byte> data);

}  // namespace skein::gpu
