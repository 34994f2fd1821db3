#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// What COMPLETE says of a file.
struct ListedFile {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  /// CRC-32C of each tensor's bytes. Empty for files that hold none, and in checkpoints that were
  /// written before there were such digests.
  std::map<std::string, uint32_t> tensors;
};
using Listing = std::map<std::string, ListedFile>;  // By file name.

/// The file of each tensor by an index of safetensors files: names without folders. DataLoss names
/// what is wrong.
absl::StatusOr<std::map<std::string, std::string>> read_weight_map(const std::string& path);

/// Reads and writes the contents of COMPLETE, or of another file of that form. DataLoss names what
/// is wrong.
absl::StatusOr<Listing> read_listing(const std::string& folder,
                                     const std::string& name = kCompleteName);
nlohmann::ordered_json to_json(const Listing& listing);

/// The digest of each tensor of a file.
std::map<std::string, uint32_t> tensor_digests(const SafetensorsFile& file);

/// Reads a file and compares it with its entry: a line for each fault, which names the tensors that
/// are damaged. Empty: it is what was written.
std::vector<std::string> find_file_faults(const std::string& folder, const std::string& name,
                                          const ListedFile& listed);

/// Shapes by name of all tensors that a checkpoint of the model may have, with the optimizer's.
std::map<std::string, std::vector<int64_t>> tensor_shapes(const plans::ModelSpec& model,
                                                          const std::string& optimizer);

}  // namespace skein::gpu
