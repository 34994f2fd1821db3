#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace skein::gpu {

/// What tools/skein-prepare says of the token files that it has written: a manifest.json.
struct TokenManifest {
  struct Shard {
    std::string file;  // Lies beside the manifest.
    int64_t tokens = 0;
  };
  int64_t vocab_size = 0;   // In [1, 2^31).
  int64_t token_bytes = 0;  // Each token in all files has so many.
  /// The digest of the tokenizer.json that the text became tokens by, as `sha256` gives it. Empty:
  /// not known.
  std::string tokenizer_sha256;
  std::vector<Shard> training, validation;  // No file is listed twice.
};

/// The manifest that the file `path` holds. DataLoss   it is none, or has an impossible value; the
/// message names what. The files that it lists are not looked at.
absl::StatusOr<TokenManifest> parse_manifest(const nlohmann::json& json, const std::string& path);
/// The same of the file. NotFound: it is not there. Else as `read_json`.
absl::StatusOr<TokenManifest> read_manifest(const std::string& path);

}  // namespace skein::gpu
