#pragma once

#include <functional>
#include <memory>

#include "gpu/data/token_data.hpp"

namespace skein::sim {

/// Called for each sample that is read for training. What it returns is what the reader gets, if it
/// is an error.
using OnRead = std::function<absl::Status(uint64_t sample)>;

/// The same data, watched.
std::shared_ptr<const gpu::TokenData> watch_data(std::shared_ptr<const gpu::TokenData> data,
                                                 OnRead on_read);

}  // namespace skein::sim
