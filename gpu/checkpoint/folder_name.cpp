#include "gpu/checkpoint/folder_name.hpp"

#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace skein::gpu {
namespace {

/// Ends the name of a folder that is being deleted.
constexpr char kDeletedEnd[] = ".deleted.tmp";

}  // namespace

std::string to_text(const FolderName& name) {
  std::string text = absl::StrFormat("step-%08d", name.steps_done);
  if (name.generation) absl::StrAppendFormat(&text, ".g%08d", *name.generation);
  if (name.worker) absl::StrAppendFormat(&text, ".w%05d", *name.worker);
  if (name.generation) text += ".tmp";
  if (name.is_deleted) text += kDeletedEnd;
  return text;
}

std::optional<FolderName> parse_folder_name(const std::string& text) {
  FolderName name;
  absl::string_view rest = text;
  name.is_deleted = absl::ConsumeSuffix(&rest, kDeletedEnd);
  uint64_t generation = 0;
  uint32_t worker = 0;
  const int found =
      std::sscanf(std::string(rest).c_str(), "step-%" SCNu64 ".g%" SCNu64 ".w%" SCNu32,
                  &name.steps_done, &generation, &worker);
  if (found >= 2) name.generation = generation;
  if (found >= 3) name.worker = worker;
  // It reads other texts, too: with more behind it, or with fewer digits.
  if (found < 1 || to_text(name) != text) return std::nullopt;
  return name;
}

bool is_checkpoint(const FolderName& name) { return !name.generation && !name.is_deleted; }

bool is_partial_checkpoint(const FolderName& name) {
  return name.generation && !name.worker && !name.is_deleted;
}

bool is_left_state(const FolderName& name) { return name.worker && !name.is_deleted; }

}  // namespace skein::gpu
