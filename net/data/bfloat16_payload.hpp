#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skein::net {

/// The upper halves of all numbers if all are bfloat16, so that nothing is lost; else nothing. What
/// a device with activations in bfloat16 makes is so, and takes half the bytes on a connection. Of
/// float32 numbers the last and the first few are looked at.
std::vector<uint16_t> as_bfloat16(std::span<const float> numbers);

/// Where `read_bfloat16` looks for the bytes: the second half of the memory.
std::span<std::byte> bfloat16_place(std::span<float> memory);
/// Overwrites the memory with the numbers whose upper halves are in its second half.
void read_bfloat16(std::span<float> memory);

}  // namespace skein::net
