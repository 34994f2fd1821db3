#include "gpu/checkpoint/byte_tokens.hpp"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/text/tokenizer.hpp"

namespace skein::gpu {
namespace {

bool is_of_bytes(const Tokenizer& tokenizer) {
  for (int32_t byte = 0; byte < 256; ++byte) {
    if (tokenizer.bytes_of(byte) != std::string(1, static_cast<char>(byte))) return false;
  }
  return true;
}

}  // namespace

absl::Status check_bytes_are_tokens(const std::vector<std::string>& folders,
                                    const plans::DataSpec& data) {
  if (data.dataset == "tokens") return absl::OkStatus();
  for (const std::string& folder : folders) {
    const std::string path = absl::StrCat(folder, "/", kTokenizerName);
    if (std::error_code error; !std::filesystem::exists(path, error)) continue;
    const auto tokenizer = Tokenizer::open(path);
    const bool is_another = absl::IsInvalidArgument(tokenizer.status());
    if (!tokenizer.ok() && !is_another) return tokenizer.status();
    if (!is_another && is_of_bytes(**tokenizer)) continue;
    return absl::InvalidArgumentError(absl::StrCat("bytes (data.dataset = \"", data.dataset,
                                                   "\") are no tokens of ", path,
                                                   "; give token files (\"tokens\")"));
  }
  return absl::OkStatus();
}

}  // namespace skein::gpu
