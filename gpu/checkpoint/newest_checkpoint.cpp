#include "gpu/checkpoint/newest_checkpoint.hpp"

#include <filesystem>

#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

/// Runs that complete a checkpoint faster than one can be opened are none.
constexpr int kAttempts = 5;

/// The checkpoint that the path means now, whatever a link points at later; empty: none.
std::string newest_of(const std::string& path) {
  std::error_code error;
  const auto there = complete_checkpoints(path);
  if (!there.ok()) return "";
  const bool is_link = fs::is_symlink(there->front(), error);
  return is_link ? fs::canonical(there->front(), error).string() : there->front();
}

}  // namespace

absl::Status read_newest(const std::string& path,
                         const std::function<absl::Status(const std::string&)>& read) {
  for (int attempt = 1;; ++attempt) {
    const std::string newest = newest_of(path);
    absl::Status status = read(newest.empty() ? path : newest);
    std::error_code error;
    const bool is_gone = !newest.empty() && !fs::exists(fs::path(newest) / kCompleteName, error);
    if (!is_gone || attempt == kAttempts) return status;
  }
}

}  // namespace skein::gpu
