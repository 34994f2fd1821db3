#include "gpu/data/token_manifest.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gpu/files/check_there.hpp"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "skein-tokens";
constexpr int64_t kVersion = 1;
constexpr size_t kDigestDigits = 64;

/// Whether it is that of a file in the same folder: no path, not "." or "..", and without NUL,
/// which would end it early, and ends of lines.
bool is_plain_name(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char each) {
    return static_cast<unsigned char>(each) >= ' ' && each != '/';
  });
  return is_plain && !name.empty() && name != "." && name != "..";
}

absl::Status read_shards(const Json& manifest, const std::string& path, const char* part,
                         std::set<std::string>& names, std::vector<TokenManifest::Shard>& shards) {
  const Json& listed = field_or_null(manifest, part);
  if (!listed.is_array()) {
    return absl::DataLossError(absl::StrCat(path, " has no list \"", part, "\""));
  }
  for (const Json& entry : listed) {
    TokenManifest::Shard shard;
    if (!entry.is_object()) {
      return absl::DataLossError(absl::StrCat(path, ": \"", part, "\" lists what is no shard"));
    }
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "file", shard.file));
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "tokens", shard.tokens));
    if (!is_plain_name(shard.file)) {
      return absl::DataLossError(
          absl::StrCat(path, ": ", Json(shard.file).dump(), " is no file beside it"));
    }
    if (!names.insert(shard.file).second) {
      return absl::DataLossError(absl::StrCat(path, " lists ", shard.file,
                                              " twice; take one of them out, or prepare the data "
                                              "again"));
    }
    shards.push_back(std::move(shard));
  }
  return absl::OkStatus();
}

absl::Status read_digest(const Json& manifest, const std::string& path, std::string& digest) {
  SKEIN_RETURN_IF_ERROR(
      take_optional(field_or_null(manifest, "tokenizer"), path, "sha256", digest));
  const bool is_digest =
      digest.size() == kDigestDigits && std::all_of(digest.begin(), digest.end(), [](char each) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(each));
      });
  if (!digest.empty() && !is_digest) {
    return absl::DataLossError(absl::StrCat(path, ": the tokenizer's \"sha256\" is no digest"));
  }
  absl::AsciiStrToLower(&digest);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenManifest> parse_manifest(const Json& json, const std::string& path) {
  TokenManifest manifest;
  std::string format;
  int64_t version = 0;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "format", format));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "version", version));
  if (format != kFormat || version != kVersion) {
    return absl::DataLossError(absl::StrCat(path, " is ", Json(format).dump(), " of version ",
                                            version, ", not ", kFormat, " of version ", kVersion));
  }
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "vocab_size", manifest.vocab_size));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "token_bytes", manifest.token_bytes));
  if (manifest.vocab_size < 1 || manifest.vocab_size > INT32_MAX) {
    return absl::DataLossError(absl::StrCat(path, ": \"vocab_size\" is ",
                                            field_or_null(json, "vocab_size").dump(),
                                            ", and no tokenizer has so many tokens"));
  }
  SKEIN_RETURN_IF_ERROR(read_digest(json, path, manifest.tokenizer_sha256));
  std::set<std::string> names;
  SKEIN_RETURN_IF_ERROR(read_shards(json, path, "train", names, manifest.training));
  SKEIN_RETURN_IF_ERROR(read_shards(json, path, "validation", names, manifest.validation));
  return manifest;
}

absl::StatusOr<TokenManifest> read_manifest(const std::string& path) {
  SKEIN_RETURN_IF_ERROR(check_there(path));
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  return parse_manifest(json, path);
}

}  // namespace skein::gpu
