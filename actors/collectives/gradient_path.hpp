#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/numbers.hpp"
#include "plans/collectives/group_formation.hpp"

namespace skein::actors {

/// What a member of a group tells the others before it is formed.
struct PathEntry {
  std::string library;  // What its device's groups use, "nccl 2.28.9"; empty: it has none.
  std::string detail;   // Which device it is, of which machine; or why it has none.
  bool is_gpu = false;  // It could be expected to have one.
  plans::GroupOffer offer;
  gpu::NumberType activations = gpu::NumberType::kFloat32;  // The type of a GPU's.
  bool operator==(const PathEntry&) const = default;
};

/// An entry as text, and back. InvalidArgument.
std::string to_text(const PathEntry& entry);
absl::StatusOr<PathEntry> parse_path_entry(const std::string& text);

/// In what type devices pass on activations and their gradients so that nothing is lost, and those
/// who take them have no others: bfloat16 if all members have these.
gpu::NumberType passed_on_type(const std::vector<PathEntry>& entries);

/// Which way a group's gradients take. All members decide from the same entries, so alike.
struct GradientPath {
  bool on_device = false;
  std::string reason;  // Why not, where a GPU is among the members; else empty.
  bool operator==(const GradientPath&) const = default;
};

/// `entries`  of all members, by rank.
/// InvalidArgument  if `backend` is "nccl" and not all members are GPUs, each its own, with the
/// same
///                  library: an input that ends the run, as no other worker would do better.
absl::StatusOr<GradientPath> choose_gradient_path(const std::string& backend,
                                                  const std::vector<PathEntry>& entries);

}  // namespace skein::actors
