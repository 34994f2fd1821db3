#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/data/token_file.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

/// The folders in which a job's token files are, as absolute paths; none if its data are bytes.
std::vector<std::string> token_folders(const plans::DataSpec& data);
/// The manifests among these files, by their paths as the job gives them.
std::vector<std::string> token_manifests(const plans::DataSpec& data);

/// The files of one source of data, in order.
struct TokenSource {
  struct Shard {
    std::string path;
    TokenArray array;
    int64_t vocab_size = INT32_MAX;  // Its tokens are below it, by its manifest.
  };
  std::vector<Shard> training;
  std::vector<Shard> validation;  // Only what a manifest lists as such.
};

/// `path` is a file, a pattern with * and ?, whose matches are in the order of their names, or a
/// manifest (`.json`), as tools/skein-prepare writes it. `is_text`: every byte is a token, and
/// there are no manifests. Tokens are not looked at.
/// NotFound          nothing matches, or a file is not there.
/// InvalidArgument   a manifest is for more tokens than `vocab_size`.
/// DataLoss          a file is damaged, or not what its manifest says; or this is none.
absl::StatusOr<TokenSource> open_source(const std::string& path, bool is_text, int64_t vocab_size);

}  // namespace skein::gpu
