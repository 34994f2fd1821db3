#include "actors/collectives/gradient_path.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// The entry is lines, of which the offer is the last ones.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// Why the members cannot form a group of their devices; empty: they can.
std::string obstacle(const std::vector<PathEntry>& entries) {
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const PathEntry& entry = entries[rank];
    if (entry.library.empty()) return absl::StrCat("member ", rank, ": ", entry.detail);
    if (entry.library != entries[0].library) {
      return absl::StrCat("member ", rank, " has ", entry.library, ", member 0 has ",
                          entries[0].library);
    }
    for (size_t other = 0; other < rank; ++other) {
      if (entries[other].detail != entry.detail) continue;
      return absl::StrCat("members ", other, " and ", rank, " share the GPU ", entry.detail);
    }
  }
  return "";
}

constexpr const char* kBfloat16Gpu = "gpu, bfloat16";

/// The third line.
std::string kind_of(const PathEntry& entry) {
  if (!entry.is_gpu) return "host";
  return entry.activations == gpu::NumberType::kBfloat16 ? kBfloat16Gpu : "gpu";
}

}  // namespace

std::string to_text(const PathEntry& entry) {
  return absl::StrCat(one_line(entry.library), "\n", one_line(entry.detail), "\n", kind_of(entry),
                      "\n", plans::to_text(entry.offer));
}

absl::StatusOr<PathEntry> parse_path_entry(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 3));
  if (parts.size() != 4 || (parts[2] != "gpu" && parts[2] != kBfloat16Gpu && parts[2] != "host")) {
    return absl::InvalidArgumentError(
        absl::StrCat("a member tells of its device in ", parts.size(), " lines of 4"));
  }
  PathEntry entry;
  entry.library = parts[0];
  entry.detail = parts[1];
  entry.is_gpu = parts[2] != "host";
  if (parts[2] == kBfloat16Gpu) entry.activations = gpu::NumberType::kBfloat16;
  SKEIN_ASSIGN_OR_RETURN(entry.offer, plans::parse_group_offer(parts[3]));
  return entry;
}

gpu::NumberType passed_on_type(const std::vector<PathEntry>& entries) {
  const bool all = std::all_of(entries.begin(), entries.end(), [](const PathEntry& each) {
    return each.activations == gpu::NumberType::kBfloat16;
  });
  return all ? gpu::NumberType::kBfloat16 : gpu::NumberType::kFloat32;
}

absl::StatusOr<GradientPath> choose_gradient_path(const std::string& backend,
                                                  const std::vector<PathEntry>& entries) {
  if (backend == "gloo") return GradientPath{};
  const std::string why = obstacle(entries);
  if (why.empty()) return GradientPath{true, ""};
  if (backend == "nccl") {
    return absl::InvalidArgumentError(
        absl::StrCat("comm.backend is \"nccl\", but ", why, "; use \"auto\""));
  }
  const bool has_gpu = std::any_of(entries.begin(), entries.end(),
                                   [](const PathEntry& each) { return each.is_gpu; });
  return GradientPath{false, has_gpu ? why : ""};
}

}  // namespace skein::actors
