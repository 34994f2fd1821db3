#include "gpu/cuda/nccl_groups.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/nccl_group.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// By what NCCL tells hosts apart; NCCL_HOSTID overrides it there as here.
std::string host_name() {
  if (const char* named = std::getenv("NCCL_HOSTID"); named != nullptr) return named;
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclGroups>> NcclGroups::create(CudaContext& context) {
  SKEIN_ASSIGN_OR_RETURN(const NcclLibrary* nccl, NcclLibrary::load());
  std::unique_ptr<NcclGroups> groups(new NcclGroups(*nccl, context));  // Private.
  SKEIN_ASSIGN_OR_RETURN(const std::string bus_id, context.bus_id());
  groups->info_.library = absl::StrCat("nccl ", nccl->version);
  groups->info_.place = absl::StrCat(host_name(), "/", bus_id);
  groups->info_.can_split = nccl->comm_split != nullptr;
  groups->info_.can_shrink = nccl->comm_shrink != nullptr;
  groups->info_.can_revoke = nccl->comm_revoke != nullptr;
  return groups;
}

absl::StatusOr<std::string> NcclGroups::make_id() {
  ncclUniqueId id;
  const ncclResult_t made = nccl_.get_unique_id(&id);
  if (made == ncclSuccess) return std::string(id.internal, sizeof id.internal);
  return absl::UnavailableError(
      absl::StrCat("NCCL cannot make an id: ", nccl_.get_error_string(made), "; ",
                   nccl_.get_last_error(nullptr)));
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> NcclGroups::form(const std::string& id, int32_t rank,
                                                              int32_t rank_count,
                                                              const DeviceGroup::Options& options) {
  ncclUniqueId raw;
  if (id.size() != sizeof raw.internal || rank < 0 || rank >= rank_count) {
    return absl::InvalidArgumentError(absl::StrCat("an id of ", id.size(), " bytes and rank ", rank,
                                                   " of ", rank_count, " make no group"));
  }
  std::memcpy(raw.internal, id.data(), sizeof raw.internal);
  return NcclGroup::form(nccl_, context_, raw, rank, rank_count, options);
}

}  // namespace skein::gpu
