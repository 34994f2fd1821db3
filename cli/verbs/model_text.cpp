#include "cli/verbs/model_text.hpp"

#include <filesystem>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr int64_t kByteVocabulary = 256;

absl::StatusOr<std::vector<int32_t>> parse_numbers(const std::string& prompt, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (absl::string_view word : absl::StrSplit(prompt, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    int32_t token = 0;
    if (!absl::SimpleAtoi(word, &token)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has ", vocab_size,
                       " tokens and no tokenizer.json is used: give the prompt as ",
                       "token numbers, got \"", word, "\""));
    }
    tokens.push_back(token);
  }
  if (tokens.empty()) tokens.push_back(static_cast<int32_t>(vocab_size - 1));  // End of text.
  return tokens;
}

}  // namespace

absl::StatusOr<ModelText> ModelText::open(const std::string& folder, int64_t vocab_size,
                                          bool is_numbers) {
  ModelText made;
  made.vocab_size_ = vocab_size;
  const std::string path = absl::StrCat(folder, "/", gpu::kTokenizerName);
  if (std::error_code error; !is_numbers && std::filesystem::exists(path, error)) {
    auto tokenizer = gpu::Tokenizer::open(path);
    if (!tokenizer.ok()) {
      return absl::Status(tokenizer.status().code(),
                          absl::StrCat(std::string(tokenizer.status().message()),
                                       "; --ids speaks in token numbers instead"));
    }
    made.tokenizer_ = *std::move(tokenizer);
    made.kind_ = Kind::kTokenizer;
  } else if (!is_numbers && vocab_size <= kByteVocabulary) {
    made.kind_ = Kind::kBytes;
  }
  return made;
}

ModelText ModelText::bytes() {
  ModelText made;
  made.kind_ = Kind::kBytes;
  made.vocab_size_ = kByteVocabulary;
  return made;
}

absl::StatusOr<std::vector<int32_t>> ModelText::encode(const std::string& prompt) const {
  std::vector<int32_t> tokens;
  if (kind_ == Kind::kTokenizer) {
    SKEIN_ASSIGN_OR_RETURN(tokens, tokenizer_->encode(prompt));
  } else if (kind_ == Kind::kBytes) {
    for (const char each : prompt) tokens.push_back(static_cast<unsigned char>(each));
  } else {
    SKEIN_ASSIGN_OR_RETURN(tokens, parse_numbers(prompt, vocab_size_));
  }
  if (tokens.empty()) return absl::InvalidArgumentError("the prompt is empty");
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size_) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", token, " of the prompt is beyond the model's ", vocab_size_));
  }
  return tokens;
}

std::string ModelText::add(int32_t token) {
  if (kind_ == Kind::kNumbers) return absl::StrCat(token, " ");
  if (kind_ == Kind::kBytes) return text_.add(static_cast<uint8_t>(token));
  if (tokenizer_->is_special(token)) return "";
  std::string seen;
  for (const char each : tokenizer_->bytes_of(token)) {
    seen += text_.add(static_cast<uint8_t>(each));
  }
  return seen;
}

std::optional<int64_t> ModelText::byte_count(int32_t token) const {
  if (kind_ == Kind::kNumbers) return std::nullopt;
  if (kind_ == Kind::kBytes) return 1;
  if (tokenizer_->is_special(token)) return 0;
  return static_cast<int64_t>(tokenizer_->bytes_of(token).size());
}

}  // namespace skein::cli
