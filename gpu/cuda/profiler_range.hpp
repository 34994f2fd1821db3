#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace skein::gpu {

/// Shows a profiler (Nsight Systems) what the thread does while the object lives. Without one it
/// costs a test of a pointer.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name) {
    nvtxRangePushA(name.empty() ? "work" : name.c_str());
  }
  ~ProfilerRange() { nvtxRangePop(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace skein::gpu
