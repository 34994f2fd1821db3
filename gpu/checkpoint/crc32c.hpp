#pragma once

#include <cstdint>
#include <span>

namespace skein::gpu {

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 appendix B.4) of `bytes`, going on from `crc`.
/// By the processor's own instruction where it has one: all state that moves is summed twice.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
/// The same on any processor, some eight times slower.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace skein::gpu
