#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/verbs/generated_text.hpp"
#include "gpu/text/tokenizer.hpp"

namespace skein::cli {

/// What a model's tokens are to people: text by the tokenizer.json in its folder, bytes if it has
/// none and at most 256 tokens, else their numbers.
class ModelText {
 public:
  /// `is_numbers`: numbers in any case. Errors of `gpu::Tokenizer::open`.
  static absl::StatusOr<ModelText> open(const std::string& folder, int64_t vocab_size,
                                        bool is_numbers);

  /// Each token is a byte; no file is looked for.
  static ModelText bytes();

  bool is_numbers() const { return kind_ == Kind::kNumbers; }
  /// The tokens of a prompt, at least one. InvalidArgument if it is no text, no numbers, or has a
  /// token that the model has not.
  absl::StatusOr<std::vector<int32_t>> encode(const std::string& prompt) const;
  /// What people see of the next token, or of those that waited for it; often nothing.
  std::string add(int32_t token);
  /// Nothing comes any more. Returns what waited.
  std::string end() { return text_.end(); }
  /// Bytes of text that a token stands for; none if that is not known.
  std::optional<int64_t> byte_count(int32_t token) const;

 private:
  enum class Kind { kTokenizer, kBytes, kNumbers };

  Kind kind_ = Kind::kNumbers;
  int64_t vocab_size_ = 0;
  std::shared_ptr<const gpu::Tokenizer> tokenizer_;
  GeneratedText text_;
};

}  // namespace skein::cli
