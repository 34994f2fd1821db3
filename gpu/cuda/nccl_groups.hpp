#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/nccl_library.hpp"
#include "gpu/device_group.hpp"

namespace skein::gpu {

/// The groups that one GPU is in. Thread-safe; the context must outlive it and its groups.
class NcclGroups final : public DeviceGroups {
 public:
  /// Unavailable, in one line, if NCCL is not here.
  static absl::StatusOr<std::unique_ptr<NcclGroups>> create(CudaContext& context);

  const Info& info() const override { return info_; }
  absl::StatusOr<std::string> make_id() override;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> form(const std::string& id, int32_t rank,
                                                    int32_t rank_count,
                                                    const DeviceGroup::Options& options) override;

 private:
  NcclGroups(const NcclLibrary& nccl, CudaContext& context) : nccl_(nccl), context_(context) {}

  const NcclLibrary& nccl_;
  CudaContext& context_;
  Info info_;
};

}  // namespace skein::gpu
