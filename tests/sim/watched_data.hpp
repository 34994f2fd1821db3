#pragma once

#include <functional>
#include <memory>

#include "gpu/data/token_data.hpp"

namespace skein::sim {

/// The same data; tells which samples are read for training.
std::shared_ptr<const gpu::TokenData> watch_data(std::shared_ptr<const gpu::TokenData> data,
                                                 std::function<void(uint64_t sample)> on_read);

}  // namespace skein::sim
