#include "gpu/data/token_source.hpp"

#include <glob.h>

#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/data/token_manifest.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

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

/// The device of a file and its number there, whatever names it has.
using FileNumber = std::pair<uint64_t, uint64_t>;

/// `names` has the name in the manifest of each file so far.
absl::Status open_shards(const std::vector<TokenManifest::Shard>& listed, const std::string& path,
                         const TokenManifest& manifest, std::map<FileNumber, std::string>& names,
                         std::vector<TokenSource::Shard>& shards) {
  for (const TokenManifest::Shard& each : listed) {
    const std::string shard = (fs::path(path).parent_path() / each.file).string();
    SKEIN_ASSIGN_OR_RETURN(TokenArray array, open_tokens(shard));
    const MappedFile::Version& version = array.file->version();
    const auto [first, is_new] = names.try_emplace({version.device, version.inode}, each.file);
    if (!is_new) {
      return absl::DataLossError(absl::StrCat(path, " lists ", first->second, " and ", each.file,
                                              ", which are one file; take one of them out, or "
                                              "prepare the data again"));
    }
    if (array.count != each.tokens || array.width != manifest.token_bytes) {
      return absl::DataLossError(absl::StrCat(
          shard, " has ", array.count, " tokens of ", array.width, " bytes, ", path, " says ",
          each.tokens, " of ", manifest.token_bytes, "; prepare the data again"));
    }
    shards.push_back({shard, std::move(array), manifest.vocab_size});
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenSource> open_manifest(const std::string& path, int64_t vocab_size) {
  SKEIN_ASSIGN_OR_RETURN(const TokenManifest manifest, read_manifest(path));
  if (manifest.vocab_size > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is for ", manifest.vocab_size, " tokens, beyond model.vocab_size = ", vocab_size));
  }
  TokenSource source;
  std::map<FileNumber, std::string> names;
  SKEIN_RETURN_IF_ERROR(open_shards(manifest.training, path, manifest, names, source.training));
  SKEIN_RETURN_IF_ERROR(open_shards(manifest.validation, path, manifest, names, source.validation));
  return source;
}

bool is_manifest(const std::string& path) { return path.ends_with(".json"); }

/// Files, patterns and manifests of a job whose data are tokens.
std::vector<std::string> token_paths(const plans::DataSpec& data) {
  if (data.dataset != "tokens") return {};
  std::vector<std::string> paths = data.mixture;
  for (const std::string& path : {data.path, data.validation_path}) paths.push_back(path);
  std::erase(paths, "");
  return paths;
}

}  // namespace

std::vector<std::string> token_folders(const plans::DataSpec& data) {
  std::vector<std::string> folders;
  for (const std::string& path : token_paths(data)) {
    folders.push_back(fs::absolute(path).parent_path().string());
  }
  return folders;
}

std::vector<std::string> token_manifests(const plans::DataSpec& data) {
  std::vector<std::string> paths = token_paths(data);
  std::erase_if(paths, [](const std::string& path) { return !is_manifest(path); });
  return paths;
}

absl::StatusOr<TokenSource> open_source(const std::string& path, bool is_text, int64_t vocab_size) {
  if (!is_text && is_manifest(path)) return open_manifest(path, vocab_size);
  std::vector<std::string> paths = {path};
  std::error_code error;
  if (path.find_first_of("*?") != std::string::npos && !fs::exists(path, error)) {
    SKEIN_ASSIGN_OR_RETURN(paths, matches_of(path));
  }
  TokenSource source;
  for (const std::string& each : paths) {
    SKEIN_ASSIGN_OR_RETURN(TokenArray array, is_text ? open_text(each) : open_tokens(each));
    source.training.push_back({each, std::move(array), INT32_MAX});
  }
  return source;
}

}  // namespace skein::gpu
