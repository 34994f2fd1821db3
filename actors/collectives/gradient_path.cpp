#include "actors/collectives/gradient_path.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  std::map<std::string, size_t> rank_of_device;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const PathEntry& entry = entries[rank];
    if (entry.library.empty()) return absl::StrCat("member ", rank, ": ", entry.detail);
    if (entry.library != entries[0].library) {
      return absl::StrCat("member ", rank, " has ", entry.library, ", member 0 has ",
                          entries[0].library);
    }
    const auto [other, is_own] = rank_of_device.try_emplace(entry.detail, rank);
    if (!is_own) {
      return absl::StrCat("members ", other->second, " and ", rank, " share the GPU ",
                          entry.detail);
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

// The first and the third line of a decision.
constexpr const char* kRefused = "refused";
constexpr const char* kOnDevice = "device";
constexpr const char* kByHosts = "hosts";
constexpr const char* kBfloat16Activations = "bfloat16";
constexpr const char* kFloat32Activations = "float32";

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

std::string to_text(const GroupDecision& decision) {
  const char* type = decision.activations == gpu::NumberType::kBfloat16 ? kBfloat16Activations
                                                                        : kFloat32Activations;
  return absl::StrCat(decision.is_refused       ? kRefused
                      : decision.path.on_device ? kOnDevice
                                                : kByHosts,
                      "\n", one_line(decision.path.reason), "\n", type, "\n",
                      plans::to_text(decision.formation), "\n", absl::StrJoin(decision.kept, " "));
}

absl::StatusOr<GroupDecision> parse_group_decision(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const bool is_known = lines.size() == 5 &&
                        (lines[0] == kRefused || lines[0] == kOnDevice || lines[0] == kByHosts) &&
                        (lines[2] == kBfloat16Activations || lines[2] == kFloat32Activations);
  if (!is_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("how a group is formed is told in ", lines.size(), " lines of 5"));
  }
  GroupDecision decision;
  decision.is_refused = lines[0] == kRefused;
  decision.path = {lines[0] == kOnDevice, lines[1]};
  if (lines[2] == kBfloat16Activations) decision.activations = gpu::NumberType::kBfloat16;
  SKEIN_ASSIGN_OR_RETURN(decision.formation, plans::parse_formation(lines[3]));
  for (absl::string_view word : absl::StrSplit(lines[4], ' ', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(word, &number) || decision.kept.size() == plans::kKeptMax) {
      return absl::InvalidArgumentError("the groups that are kept are no numbers, or too many");
    }
    decision.kept.insert(number);
  }
  return decision;
}

}  // namespace skein::actors
