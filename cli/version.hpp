#pragma once

namespace skein::cli {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace skein::cli
