#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::fuzz {

/// Feeds untrusted bytes to the code under test, which must neither crash nor throw.
void run_one(const uint8_t* data, size_t bytes);

/// Mutations that a short run makes.
size_t short_run();

/// Valid inputs from which mutations start.
std::vector<std::vector<uint8_t>> seeds();

}  // namespace skein::fuzz
