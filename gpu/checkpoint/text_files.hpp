#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

/// A small file that says how text becomes tokens, or how it is drawn.
struct TextFile {
  std::string name;  // "tokenizer.json"
  std::string contents;
};

/// Whether the folder's tokenizer.json, if there is one, is a JSON object with a "model", of
/// whichever kind. DataLoss   it is not.
absl::Status check_tokenizer(const std::string& folder);

/// Whether tokens are the same by the tokenizer.json of all `folders`, and of all that have `data`,
/// that have one. A manifest of data that has none beside it was prepared with one of these files,
/// by its digest; one that has was prepared with that.
/// InvalidArgument   they are not. DataLoss   as `check_tokenizer` of each, or a file is no
/// manifest.
/// NotFound          a manifest is not there.
absl::Status check_same_tokens(std::vector<std::string> folders, const plans::DataSpec& data);

/// tokenizer.json and what stands beside it of tokenizer_config.json, special_tokens_map.json and
/// chat_template.jinja, of the first of `folders` that has the former; generation_config.json of
/// the first that has it, up to the first that names the end of a text: `eos_token_id`, token
/// numbers, in generation_config.json or else in config.json. It then names that end as well, and
/// is made where there is none. A config.json that does not say so, or is no JSON, is as good as
/// none. Empty if there are none.
/// InvalidArgument   a file is too large.
/// Others            as `MappedFile::open`.
absl::StatusOr<std::vector<TextFile>> find_text_files(const std::vector<std::string>& folders);

/// Writes them into the run's folder, from which every checkpoint of the run has them.
absl::Status keep_text_files(const std::vector<TextFile>& files, const std::string& run_folder);

/// Writes those that the run has into a checkpoint that is being made, and lists them.
absl::Status copy_text_files(const std::string& run_folder, const std::string& checkpoint,
                             Listing& listing);

}  // namespace skein::gpu
