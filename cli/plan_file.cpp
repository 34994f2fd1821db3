#include "cli/plan_file.hpp"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

/// A plan of 1,000 workers with 1,000 micro-batches each has fewer.
constexpr size_t kPlanBytesMax = 64 << 20;

}  // namespace

absl::StatusOr<plans::Plan> read_plan(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("no plan file ", path));
  const std::streamoff bytes = file.tellg();
  if (bytes < 0 || static_cast<size_t>(bytes) > kPlanBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", kPlanBytesMax, " bytes; it is no plan"));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seekg(0);
  file.read(text.data(), bytes);
  absl::StatusOr<plans::Plan> plan = plans::parse_plan(text);
  if (plan.ok()) return plan;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(plan.status().message())));
}

}  // namespace skein::cli
