#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/files/mapped_file.hpp"

namespace skein::gpu {

/// kOther: another one that a file may have, whose numbers are not read.
enum class TensorType { kF32, kF16, kBf16, kOther };

/// One tensor of a safetensors file: where its bytes lie behind the header.
struct TensorEntry {
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // In bytes of the data part.
  uint64_t end = 0;
};

/// Largest header that is read, as in the reference implementation.
inline constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;

/// Checks and reads the header of a file that begins with `bytes` and has `file_bytes` in all:
/// tensors contiguous from 0 without holes or overlaps, covering the data part; sizes that are
/// those of type and shape; no name twice. DataLoss   with what is wrong. Nothing is allocated for
/// sizes that were not checked.
struct SafetensorsHeader {
  uint64_t data_offset = 0;
  std::map<std::string, TensorEntry> tensors;
};
absl::StatusOr<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes,
                                                    uint64_t file_bytes);

/// A file opened for reading. Immutable and thread-safe.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> open(const std::string& path);

  const std::map<std::string, TensorEntry>& tensors() const { return header_.tensors; }
  /// Copies a tensor as float32; F16 and BF16 are converted.
  /// NotFound; InvalidArgument if the type is none of those or `out` is not its size.
  absl::Status read(const std::string& name, std::span<float> out) const;
  std::span<const std::byte> contents() const { return {file_->data(), file_->bytes()}; }
  /// What the file holds of one of its tensors.
  std::span<const std::byte> bytes_of(const TensorEntry& entry) const {
    return contents().subspan(header_.data_offset + entry.begin, entry.end - entry.begin);
  }

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// A float32 tensor to be written.
struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};
/// What was written: size and CRC-32C of the whole file.
struct WrittenFile {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};
/// Writes a file durably: tensors by name, header padded with spaces to a multiple of 8, metadata
/// {"format":"pt"}, as the reference implementation does.
absl::StatusOr<WrittenFile> write_safetensors(const std::string& path,
                                              std::vector<TensorToWrite> tensors);

}  // namespace skein::gpu
