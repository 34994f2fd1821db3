#pragma once

#include <cstdint>
#include <span>

namespace skein::gpu {

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 appendix B.4) of `bytes`, going on from `crc`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace skein::gpu
