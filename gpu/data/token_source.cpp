#include "gpu/data/token_source.hpp"

#include <glob.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "skein-tokens";
constexpr int64_t kVersion = 1;

absl::StatusOr<std::vector<std::string>> matches_of(const std::string& pattern) {
  std::string escaped;  // Only * and ? mean more than themselves.
  for (const char each : pattern) {
    if (each == '[' || each == '\\') escaped.push_back('\\');
    escaped.push_back(each);
  }
  glob_t found{};
  const int error = glob(escaped.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  for (size_t n = 0; error == 0 && n < found.gl_pathc; ++n) paths.emplace_back(found.gl_pathv[n]);
  globfree(&found);
  if (!paths.empty()) return paths;
  if (error == GLOB_ABORTED) {
    return absl::NotFoundError(absl::StrCat("a folder of ", pattern, " cannot be read"));
  }
  return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
}

absl::Status open_shards(const Json& manifest, const std::string& path, int64_t token_bytes,
                         const char* part, std::vector<TokenSource::Shard>& shards) {
  const auto listed = manifest.find(part);
  if (listed == manifest.end() || !listed->is_array()) {
    return absl::DataLossError(absl::StrCat(path, " has no list \"", part, "\""));
  }
  for (const Json& entry : *listed) {
    std::string name;
    int64_t tokens = 0;
    if (!entry.is_object()) {
      return absl::DataLossError(absl::StrCat(path, ": \"", part, "\" lists what is no shard"));
    }
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "file", name));
    SKEIN_RETURN_IF_ERROR(take_field(entry, path, "tokens", tokens));
    if (name.empty() || name.find('/') != std::string::npos) {
      return absl::DataLossError(absl::StrCat(path, ": \"", name, "\" is no file beside it"));
    }
    const std::string shard = (fs::path(path).parent_path() / name).string();
    SKEIN_ASSIGN_OR_RETURN(TokenArray array, open_tokens(shard));
    if (array.count != tokens || array.width != token_bytes) {
      return absl::DataLossError(absl::StrCat(shard, " has ", array.count, " tokens of ",
                                              array.width, " bytes, ", path, " says ", tokens,
                                              " of ", token_bytes, "; prepare the data again"));
    }
    shards.push_back({shard, std::move(array)});
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenSource> open_manifest(const std::string& path, int64_t vocab_size) {
  if (std::error_code error; !fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " is not there"));
  }
  SKEIN_ASSIGN_OR_RETURN(const Json manifest, read_json(path));
  std::string format;
  int64_t version = 0, vocabulary = 0, token_bytes = 0;
  SKEIN_RETURN_IF_ERROR(take_field(manifest, path, "format", format));
  SKEIN_RETURN_IF_ERROR(take_field(manifest, path, "version", version));
  SKEIN_RETURN_IF_ERROR(take_field(manifest, path, "vocab_size", vocabulary));
  SKEIN_RETURN_IF_ERROR(take_field(manifest, path, "token_bytes", token_bytes));
  if (format != kFormat || version != kVersion) {
    return absl::DataLossError(absl::StrCat(path, " is ", format, " of version ", version, ", not ",
                                            kFormat, " of version ", kVersion));
  }
  if (vocabulary > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is for ", vocabulary, " tokens, beyond model.vocab_size = ", vocab_size));
  }
  TokenSource source;
  SKEIN_RETURN_IF_ERROR(open_shards(manifest, path, token_bytes, "train", source.training));
  SKEIN_RETURN_IF_ERROR(open_shards(manifest, path, token_bytes, "validation", source.validation));
  return source;
}

}  // namespace

std::vector<std::string> token_folders(const plans::DataSpec& data) {
  if (data.dataset != "tokens") return {};
  std::vector<std::string> paths = data.mixture;
  for (const std::string& path : {data.path, data.validation_path}) paths.push_back(path);
  std::vector<std::string> folders;
  for (const std::string& path : paths) {
    if (!path.empty()) folders.push_back(fs::absolute(path).parent_path().string());
  }
  return folders;
}

absl::StatusOr<TokenSource> open_source(const std::string& path, bool is_text, int64_t vocab_size) {
  if (!is_text && path.ends_with(".json")) return open_manifest(path, vocab_size);
  std::vector<std::string> paths = {path};
  std::error_code error;
  if (path.find_first_of("*?") != std::string::npos && !fs::exists(path, error)) {
    SKEIN_ASSIGN_OR_RETURN(paths, matches_of(path));
  }
  TokenSource source;
  for (const std::string& each : paths) {
    SKEIN_ASSIGN_OR_RETURN(TokenArray array, is_text ? open_text(each) : open_tokens(each));
    source.training.push_back({each, std::move(array)});
  }
  return source;
}

}  // namespace skein::gpu
