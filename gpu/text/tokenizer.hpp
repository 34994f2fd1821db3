#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "gpu/text/added_tokens.hpp"
#include "gpu/text/byte_pairs.hpp"
#include "gpu/text/pre_tokenizer.hpp"

namespace skein::gpu {

/// The two tokens of an entry of "merges", which is "a b", or ["a", "b"] in newer files. None if it
/// is neither.
std::optional<std::pair<std::string, std::string>> read_merge(const nlohmann::json& merge);

/// Text as tokens and back, by a tokenizer.json of Hugging Face's with byte-level pairs, as those
/// of GPT-2, Llama 3, SmolLM and Qwen2. What a file asks for beyond that is refused by name; its
/// `truncation` and `padding` are not looked at. Immutable and thread-safe.
class Tokenizer {
 public:
  /// NotFound          there is no such file.
  /// DataLoss          it is damaged or lacks a field.
  /// InvalidArgument   it is of another kind; the message names what.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> open(const std::string& path);
  /// The same of the contents of the file `path`.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> parse(const nlohmann::json& json,
                                                          const std::string& path);

  /// The largest token and one more.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The tokens of a text, in which added tokens stand for themselves, between those that the
  /// file's post-processor puts around every text. InvalidArgument if it is no UTF-8, or has a byte
  /// without a token.
  absl::StatusOr<std::vector<int32_t>> encode(std::string_view text) const;
  /// The bytes that a token stands for, often a part of a character; empty if there is no such
  /// token.
  std::string_view bytes_of(int32_t token) const;
  /// Tokens as <|endoftext|>, which are no part of a text.
  bool is_special(int32_t token) const;

 private:
  struct Token {
    std::string bytes;
    bool is_special = false;
  };
  using Take = std::function<absl::Status(std::string_view)>;

  absl::Status read_vocabulary(const nlohmann::json& model, const std::string& path);
  absl::Status read_merges(const nlohmann::json& model, const std::string& path);
  absl::Status read_added(const nlohmann::json& json, const std::string& path);
  absl::Status read_normalizer(const nlohmann::json& json, const std::string& path);
  absl::Status read_frame(const nlohmann::json& json, const std::string& path);
  absl::Status put(const std::string& path, int64_t token, std::string bytes);

  std::vector<Token> tokens_;
  std::map<std::string, int32_t> named_;  // Tokens by their names in the file.
  AddedTokens added_, normal_added_;      // Found before normalization, and in what is left.
  std::vector<int32_t> first_, last_;     // Put around every text.
  bool composes_ = false;                 // Unicode's form NFC.
  PreTokenizer pieces_;
  BytePairs pairs_;
};

}  // namespace skein::gpu
