#include "gpu/checkpoint/text_files.hpp"

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/generation_config.hpp"
#include "gpu/data/token_manifest.hpp"
#include "gpu/data/token_source.hpp"
#include "gpu/files/durable_file.hpp"
#include "gpu/files/json_file.hpp"
#include "gpu/files/mapped_file.hpp"
#include "gpu/files/sha256.hpp"
#include "gpu/text/tokenizer.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Those of the largest vocabularies have some 30 MB.
constexpr uint64_t kBytesMax = 64 << 20;
constexpr const char* kKeptFolder = "tokenizer";  // In the run's folder.
/// The first one decides which folder the others are from.
constexpr std::array kTokenizerFiles = {kTokenizerName, "tokenizer_config.json",
                                        "special_tokens_map.json", "chat_template.jinja"};
constexpr const char* kEndKey = "eos_token_id";

bool has(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

absl::Status read_into(const std::string& folder, const char* name, std::vector<TextFile>& files) {
  const std::string path = absl::StrCat(folder, "/", name);
  SKEIN_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  if (file->bytes() > kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", file->bytes(), " bytes, more than ", kBytesMax, "; it is no tokenizer's"));
  }
  const auto* text = reinterpret_cast<const char*>(file->data());
  files.push_back({name, file->bytes() == 0 ? "" : std::string(text, file->bytes())});
  return absl::OkStatus();
}

bool is_end(const Json& value, const std::string& path) {
  return !value.is_null() && parse_end_tokens(value, path).ok();
}

/// What a file of the folder says of the end of a text; null: nothing. A config.json may be
/// anybody's beside data, and whoever needs a model's says what is wrong with it.
Json end_by(const std::string& folder, const char* name) {
  const std::string path = absl::StrCat(folder, "/", name);
  const absl::StatusOr<Json> json = read_json(path);
  if (!json.ok()) return nullptr;
  const Json& end = field_or_null(*json, kEndKey);
  return is_end(end, path) ? end : nullptr;
}

/// The first generation_config.json, and behind which token a text ends by the first folder that
/// says so: the model's may not, and data be prepared with one. Nothing if there is neither.
absl::Status read_generation_config(const std::vector<std::string>& folders,
                                    std::vector<TextFile>& files) {
  OrderedJson generation = OrderedJson::object();
  bool is_there = false;
  Json end;
  for (const std::string& folder : folders) {
    if (!is_there && has(folder, kGenerationConfigName)) {
      is_there = true;
      SKEIN_RETURN_IF_ERROR(read_into(folder, kGenerationConfigName, files));
      generation = OrderedJson::parse(files.back().contents, nullptr, /*allow_exceptions=*/false);
      // What is no JSON is copied as it is, too.
      if (!generation.is_object()) return absl::OkStatus();
    }
    end = end_by(folder, kGenerationConfigName);
    if (end.is_null()) end = end_by(folder, kConfigName);
    if (!end.is_null()) break;
  }
  const Json said = generation.value(kEndKey, OrderedJson());
  if (end.is_null() || said == end) return absl::OkStatus();
  generation[kEndKey] = end;
  if (!is_there) files.push_back({kGenerationConfigName, ""});
  files.back().contents =
      generation.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  return absl::OkStatus();
}

/// The tokens of a tokenizer.json, whichever version of the library has written it.
Json tokens_of(const Json& tokenizer) {
  const Json& model = field_or_null(tokenizer, "model");
  Json tokens = {{"vocab", field_or_null(model, "vocab")}};
  for (const Json& merge : field_or_null(model, "merges")) {
    const auto pair = read_merge(merge);
    tokens["merges"].push_back(pair ? Json(*pair) : merge);
  }
  for (const Json& added : field_or_null(tokenizer, "added_tokens")) {
    tokens["added"].push_back(
        Json::array({field_or_null(added, "id"), field_or_null(added, "content")}));
  }
  return tokens;
}

std::string tokenizer_of(const std::string& folder) {
  return absl::StrCat(folder, "/", kTokenizerName);
}

absl::StatusOr<std::string> digest_of(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  return sha256({file->data(), file->bytes()});
}

/// It may be of a kind that is not followed here.
absl::StatusOr<Json> read_tokenizer(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(Json tokenizer, read_json(path));
  if (field_or_null(tokenizer, "model").is_object()) return tokenizer;
  return absl::DataLossError(absl::StrCat(path, " has no \"model\"; it is no tokenizer's"));
}

/// By tokens, as these are compared where their tokenizers are at hand.
absl::Status check_tokenizers(const std::vector<std::string>& folders) {
  std::optional<Json> expected;
  for (const std::string& folder : folders) {
    const std::string path = tokenizer_of(folder);
    SKEIN_ASSIGN_OR_RETURN(const Json tokenizer, read_tokenizer(path));
    Json tokens = tokens_of(tokenizer);
    if (expected && tokens != *expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens mean something else by ", path, " than by ", folders.front(),
                       "; prepare the data with the tokenizer that the model has"));
    }
    expected = std::move(tokens);
  }
  return absl::OkStatus();
}

/// By digests: of a tokenizer that is not at hand a manifest says no more.
absl::Status check_manifests(const std::vector<std::string>& folders,
                             const std::vector<std::string>& manifests) {
  std::set<std::string> known;
  for (const std::string& folder : folders) {
    SKEIN_ASSIGN_OR_RETURN(std::string digest, digest_of(tokenizer_of(folder)));
    known.insert(std::move(digest));
  }
  std::string first = folders.empty() ? "" : tokenizer_of(folders.front());
  for (const std::string& path : manifests) {
    SKEIN_ASSIGN_OR_RETURN(const TokenManifest manifest, read_manifest(path));
    if (manifest.tokenizer_sha256.empty()) continue;
    const std::string folder = fs::absolute(path).parent_path().string();
    if (has(folder, kTokenizerName)) {
      SKEIN_ASSIGN_OR_RETURN(const std::string digest, digest_of(tokenizer_of(folder)));
      if (digest == manifest.tokenizer_sha256) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(tokenizer_of(folder), " is not what ", path,
                       " was prepared with, by its SHA-256; put that one back, or prepare the "
                       "data again"));
    }
    if (known.empty()) {
      known.insert(manifest.tokenizer_sha256);
      first = path;
    } else if (!known.contains(manifest.tokenizer_sha256)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " was prepared with another tokenizer than that of ", first,
          ", by its SHA-256; put the tokenizer.json that it was prepared with beside it, or "
          "prepare the data again"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_tokenizer(const std::string& folder) {
  return has(folder, kTokenizerName) ? read_tokenizer(tokenizer_of(folder)).status()
                                     : absl::OkStatus();
}

absl::Status check_same_tokens(std::vector<std::string> folders, const plans::DataSpec& data) {
  for (std::string& folder : token_folders(data)) folders.push_back(std::move(folder));
  std::erase_if(folders, [](const std::string& folder) { return !has(folder, kTokenizerName); });
  SKEIN_RETURN_IF_ERROR(check_tokenizers(folders));
  const std::vector<std::string> manifests = token_manifests(data);
  return manifests.empty() ? absl::OkStatus() : check_manifests(folders, manifests);
}

absl::StatusOr<std::vector<TextFile>> find_text_files(const std::vector<std::string>& folders) {
  std::vector<TextFile> files;
  for (const std::string& folder : folders) {
    if (!has(folder, kTokenizerName)) continue;
    for (const char* name : kTokenizerFiles) {
      if (has(folder, name)) SKEIN_RETURN_IF_ERROR(read_into(folder, name, files));
    }
    break;
  }
  SKEIN_RETURN_IF_ERROR(read_generation_config(folders, files));
  return files;
}

absl::Status keep_text_files(const std::vector<TextFile>& files, const std::string& run_folder) {
  if (files.empty()) return absl::OkStatus();
  const std::string folder = absl::StrCat(run_folder, "/", kKeptFolder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  }
  for (const TextFile& file : files) {
    SKEIN_RETURN_IF_ERROR(write_durably(absl::StrCat(folder, "/", file.name), file.contents));
  }
  return absl::OkStatus();
}

absl::Status copy_text_files(const std::string& run_folder, const std::string& checkpoint,
                             Listing& listing) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<TextFile> files,
                         find_text_files({absl::StrCat(run_folder, "/", kKeptFolder)}));
  for (const TextFile& file : files) {
    SKEIN_RETURN_IF_ERROR(write_durably(absl::StrCat(checkpoint, "/", file.name), file.contents));
    const auto digest = crc32c(std::as_bytes(std::span(file.contents)));
    listing[file.name] = {file.contents.size(), digest, {}};
  }
  return absl::OkStatus();
}

}  // namespace skein::gpu
