#include "gpu/files/json_file.hpp"

#include "gpu/files/mapped_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

/// Indexes of a thousand shards have a few MB.
constexpr uint64_t kJsonBytesMax = 64 << 20;

}  // namespace

absl::StatusOr<Json> read_json(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  if (file->bytes() > kJsonBytesMax) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->bytes(), " bytes"));
  }
  const auto* text = reinterpret_cast<const char*>(file->data());
  Json json = Json::parse(text, text + file->bytes(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, " is no JSON object; it is damaged"));
  }
  return json;
}

const Json& field_or_null(const Json& json, const char* key) {
  static const Json none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

}  // namespace skein::gpu
