#include "gpu/checkpoint/checkpoint_listing.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/files/json_file.hpp"
#include "gpu/files/mapped_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

absl::Status read_tensors(const Json& json, const std::string& path,
                          std::map<std::string, uint32_t>& tensors) {
  for (const auto& [name, digest] : json.items()) {
    if (!digest.is_number_unsigned() || digest.get<uint64_t>() > UINT32_MAX) {
      return absl::DataLossError(absl::StrCat(path, " has no digest for tensor ", name));
    }
    tensors[name] = digest.get<uint32_t>();
  }
  return absl::OkStatus();
}

std::string differs(const std::string& what, uint32_t found, uint32_t written) {
  return absl::StrFormat("%s is damaged: its CRC-32C is %08x, it was written with %08x", what,
                         found, written);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> read_weight_map(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  if (!json.contains("weight_map") || !json["weight_map"].is_object()) {
    return absl::DataLossError(absl::StrCat(path, " has no weight_map"));
  }
  std::map<std::string, std::string> file_of;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const bool is_name = file.is_string() && file.get<std::string>().find('/') == std::string::npos;
    if (!is_name) return absl::DataLossError(absl::StrCat(path, ": no file for ", tensor));
    file_of[tensor] = file.get<std::string>();
  }
  return file_of;
}

absl::StatusOr<Listing> read_listing(const std::string& folder, const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name);
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  if (!json.contains("files") || !json["files"].is_object()) {
    return absl::DataLossError(absl::StrCat(path, " lists no files"));
  }
  Listing listing;
  for (const auto& [file_name, entry] : json["files"].items()) {
    if (!entry.is_object() || file_name.find('/') != std::string::npos) {
      return absl::DataLossError(absl::StrCat(path, " has a broken entry for ", file_name));
    }
    ListedFile& file = listing[file_name];
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "bytes", file.bytes));
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "crc32c", file.crc32c));
    if (!entry.contains("tensors")) continue;
    SKEIN_RETURN_IF_ERROR(read_tensors(entry["tensors"], path, file.tensors));
  }
  return listing;
}

nlohmann::ordered_json to_json(const Listing& listing) {
  nlohmann::ordered_json json;
  for (const auto& [name, file] : listing) {
    auto& entry = json["files"][name] = {{"bytes", file.bytes}, {"crc32c", file.crc32c}};
    if (!file.tensors.empty()) entry["tensors"] = file.tensors;
  }
  return json;
}

std::map<std::string, uint32_t> tensor_digests(const SafetensorsFile& file) {
  std::map<std::string, uint32_t> digests;
  for (const auto& [name, entry] : file.tensors()) digests[name] = crc32c(file.bytes_of(entry));
  return digests;
}

std::vector<std::string> find_file_faults(const std::string& folder, const std::string& name,
                                          const ListedFile& listed) {
  const std::string path = absl::StrCat(folder, "/", name);
  const auto file = MappedFile::open(path);
  if (!file.ok()) return {std::string(file.status().message())};
  if ((*file)->bytes() != listed.bytes) {
    return {absl::StrCat(path, " has ", (*file)->bytes(), " bytes but was written with ",
                         listed.bytes, "; it is truncated or was changed")};
  }
  const uint32_t digest = crc32c({(*file)->data(), (*file)->bytes()});
  if (digest == listed.crc32c) return {};
  std::vector<std::string> faults;
  const auto tensors = SafetensorsFile::open(path);
  if (tensors.ok() && !listed.tensors.empty()) {
    const auto found = tensor_digests(**tensors);
    for (const auto& [tensor, written] : listed.tensors) {
      const auto other = found.find(tensor);
      if (other == found.end()) {
        faults.push_back(absl::StrCat(path, " is damaged: it has no tensor ", tensor));
      } else if (other->second != written) {
        faults.push_back(differs(absl::StrCat(path, ": tensor ", tensor), other->second, written));
      }
    }
  }
  if (faults.empty()) faults.push_back(differs(path, digest, listed.crc32c));
  return faults;
}

std::map<std::string, std::vector<int64_t>> tensor_shapes(const plans::ModelSpec& model,
                                                          const std::string& optimizer) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& parameter : plans::range_parameters(model, {0, plans::layer_count(model)})) {
    shapes[parameter.name] = parameter.shape;
    for (const char* suffix : moment_suffixes(optimizer)) {
      shapes[absl::StrCat(parameter.name, suffix)] = parameter.shape;
    }
  }
  return shapes;
}

}  // namespace skein::gpu
