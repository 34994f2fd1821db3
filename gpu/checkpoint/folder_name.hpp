#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace skein::gpu {

/// A folder beside the checkpoints of a run, by the name that the run's processes have given it:
///
///   step-00000500                          a complete checkpoint
///   step-00000500.g00000007.tmp            one that is being written in generation 7
///   step-00000500.g00000007.w00003.tmp     what worker 3 has left of that state
///   step-00000500.deleted.tmp, ...         what is left of one of those that is being deleted
struct FolderName {
  uint64_t steps_done = 0;
  std::optional<uint64_t> generation;
  std::optional<uint32_t> worker;  // Only with a generation.
  bool is_deleted = false;
  bool operator==(const FolderName&) const = default;
};

std::string to_text(const FolderName& name);
/// None: nobody has given it such a name, and it is somebody's own ("step-00000500.copy").
std::optional<FolderName> parse_folder_name(const std::string& text);

bool is_checkpoint(const FolderName& name);
bool is_partial_checkpoint(const FolderName& name);
bool is_left_state(const FolderName& name);

}  // namespace skein::gpu
