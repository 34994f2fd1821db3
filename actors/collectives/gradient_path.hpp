#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/numbers.hpp"
#include "plans/collectives/group_formation.hpp"

namespace skein::actors {

/// What a worker tells before groups of devices are formed.
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

/// Which way a group's gradients take.
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

/// What the members of a group are told: how it comes about.
struct GroupDecision {
  bool is_refused = false;  // As `choose_gradient_path`, for `path.reason`.
  GradientPath path;
  gpu::NumberType activations = gpu::NumberType::kFloat32;  // As which a link passes them on.
  plans::Formation formation;                               // path.on_device
  std::set<uint64_t> kept;  // Formed groups that are kept besides; kKeptMax at most.
  bool operator==(const GroupDecision&) const = default;
};

/// A decision as text, and back. InvalidArgument.
std::string to_text(const GroupDecision& decision);
absl::StatusOr<GroupDecision> parse_group_decision(const std::string& text);

}  // namespace skein::actors
