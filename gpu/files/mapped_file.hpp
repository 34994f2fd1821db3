#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace skein::gpu {

/// A file mapped for reading. Immutable and thread-safe, as long as nobody writes into the file.
class MappedFile {
 public:
  /// Which file it was, and when somebody last wrote into it.
  struct Version {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t bytes = 0;
    int64_t written_ns = 0;
    bool operator==(const Version&) const = default;
  };
  /// NotFound, PermissionDenied, DataLoss (no regular file) or Unavailable with the reason; an
  /// empty file maps to nothing. Never waits for a writer.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> open(const std::string& path);
  MappedFile(std::string path, const Version& version, const std::byte* data)
      : path_(std::move(path)), version_(version), data_(data) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return version_.bytes; }
  const Version& version() const { return version_; }
  /// What lies at the path now is the same file, and nobody has written into it.
  bool is_unchanged() const;
  /// DataLoss if it has become shorter since: behind its end now is no memory any more.
  absl::Status check_length() const;

 private:
  std::string path_;
  Version version_;
  const std::byte* data_;
};

/// From now on this process ends with `code`, and one line that says why, when a mapped file has
/// become shorter or cannot be read any more; else the system kills it without a word.
void end_on_truncated_files(int code);

}  // namespace skein::gpu
