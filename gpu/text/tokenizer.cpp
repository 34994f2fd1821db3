#include "gpu/text/tokenizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gpu/files/check_there.hpp"
#include "gpu/files/json_file.hpp"
#include "gpu/text/byte_alphabet.hpp"
#include "plans/base/readable_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

/// The largest vocabularies have a quarter of a million tokens.
constexpr int64_t kTokensMax = 4 << 20;

absl::Status unsupported(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what,
                   " is not supported; tokenizers with byte-level pairs (GPT-2, Llama 3) are"));
}

std::string type_of(const Json& json) {
  const Json& type = field_or_null(json, "type");
  return type.is_string() ? type.get<std::string>() : "without a type";
}

/// Unicode's canonical composition. ResourceExhausted if there is no memory.
absl::StatusOr<std::string> composed(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  if (bytes < 0) return absl::InvalidArgumentError(utf8proc_errmsg(bytes));
  std::string copy(reinterpret_cast<const char*>(result), static_cast<size_t>(bytes));
  std::free(result);
  return copy;
}

/// A file need not name the type where its fields tell it: GPT-2's own does not.
bool has_pairs(const Json& model) {
  if (model.contains("type")) return type_of(model) == "BPE";
  return field_or_null(model, "vocab").is_object() && field_or_null(model, "merges").is_array();
}

/// What would change the pairs in a way that is not followed.
absl::Status check_model(const Json& model, const std::string& path) {
  if (!has_pairs(model)) return unsupported(path, absl::StrCat("model ", type_of(model)));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& affix = field_or_null(model, key);
    const bool is_given =
        affix.is_string() ? !affix.get_ref<const std::string&>().empty() : !affix.is_null();
    if (is_given) return unsupported(path, key);
  }
  if (field_or_null(model, "byte_fallback") == true) return unsupported(path, "byte_fallback");
  const Json& dropout = field_or_null(model, "dropout");
  return dropout.is_null() || dropout == 0.0 ? absl::OkStatus() : unsupported(path, "dropout");
}

}  // namespace

std::optional<std::pair<std::string, std::string>> read_merge(const Json& merge) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t blank = text.find(' ');
    if (blank == std::string::npos) return std::nullopt;
    return std::pair(text.substr(0, blank), text.substr(blank + 1));
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    return std::nullopt;
  }
  return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::open(const std::string& path) {
  SKEIN_RETURN_IF_ERROR(check_there(path));
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  return parse(json, path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::parse(const Json& json,
                                                            const std::string& path) {
  auto made = std::make_unique<Tokenizer>();
  const Json& model = field_or_null(json, "model");
  if (!model.is_object()) return absl::DataLossError(absl::StrCat(path, " has no \"model\""));
  SKEIN_RETURN_IF_ERROR(check_model(model, path));
  SKEIN_ASSIGN_OR_RETURN(made->pieces_,
                         PreTokenizer::read(field_or_null(json, "pre_tokenizer"), path));
  const Json& decoder = field_or_null(json, "decoder");
  if (!decoder.is_object() || type_of(decoder) != "ByteLevel") {
    return unsupported(path, absl::StrCat("a decoder that is not ByteLevel"));
  }
  SKEIN_RETURN_IF_ERROR(made->read_normalizer(field_or_null(json, "normalizer"), path));
  SKEIN_RETURN_IF_ERROR(made->read_vocabulary(model, path));
  SKEIN_RETURN_IF_ERROR(made->read_merges(model, path));
  SKEIN_RETURN_IF_ERROR(made->read_added(field_or_null(json, "added_tokens"), path));
  SKEIN_RETURN_IF_ERROR(made->read_frame(field_or_null(json, "post_processor"), path));
  return made;
}

absl::Status Tokenizer::put(const std::string& path, int64_t token, std::string bytes) {
  if (token < 0 || token >= kTokensMax) {
    return absl::DataLossError(absl::StrCat(path, ": token number ", token, " is out of range"));
  }
  const auto index = static_cast<size_t>(token);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  tokens_[index].bytes = std::move(bytes);
  return absl::OkStatus();
}

absl::Status Tokenizer::read_vocabulary(const Json& model, const std::string& path) {
  const Json& vocabulary = field_or_null(model, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return absl::DataLossError(absl::StrCat(path, " has no \"vocab\""));
  }
  for (const auto& [name, number] : vocabulary.items()) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= kTokensMax) {
      return absl::DataLossError(absl::StrCat(path, ": no proper token number for ", name));
    }
    const auto token = number.get<int32_t>();
    std::optional<std::string> bytes = bytes_of_written(name);
    // What is not written in the alphabet of bytes stands for itself, and no pair leads to it.
    if (bytes) pairs_.add_token(*bytes, token);
    SKEIN_RETURN_IF_ERROR(put(path, token, bytes ? *std::move(bytes) : name));
    named_[name] = token;
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::read_merges(const Json& model, const std::string& path) {
  const Json& merges = field_or_null(model, "merges");
  if (!merges.is_array()) return absl::DataLossError(absl::StrCat(path, " has no \"merges\""));
  for (size_t n = 0; n < merges.size(); ++n) {
    const auto pair = read_merge(merges[n]);
    if (!pair) return absl::DataLossError(absl::StrCat(path, ": merge ", n, " is no pair"));
    const auto left_bytes = bytes_of_written(pair->first);
    const auto right_bytes = bytes_of_written(pair->second);
    if (!left_bytes || !right_bytes) return unsupported(path, absl::StrCat("merge ", n));
    if (absl::Status status = pairs_.add_merge(*left_bytes, *right_bytes); !status.ok()) {
      return absl::DataLossError(absl::StrCat(path, ": ", std::string(status.message())));
    }
  }
  if (field_or_null(model, "ignore_merges") == true) pairs_.keep_whole_tokens();
  return absl::OkStatus();
}

absl::Status Tokenizer::read_added(const Json& json, const std::string& path) {
  if (json.is_null()) return absl::OkStatus();
  if (!json.is_array()) return absl::DataLossError(absl::StrCat(path, ": no \"added_tokens\""));
  std::vector<AddedTokens::Added> as_they_are, normal;
  for (const Json& each : json) {
    if (!each.is_object()) return absl::DataLossError(absl::StrCat(path, ": no added token"));
    AddedTokens::Added added;
    int64_t token = 0;
    bool is_special = false, is_normal = false;
    SKEIN_RETURN_IF_ERROR(take_field(each, path, "content", added.content));
    SKEIN_RETURN_IF_ERROR(take_field(each, path, "id", token));
    SKEIN_RETURN_IF_ERROR(take_optional(each, path, "special", is_special));
    SKEIN_RETURN_IF_ERROR(take_optional(each, path, "normalized", is_normal));
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (field_or_null(each, key) != true) continue;
      return unsupported(path, absl::StrCat("added token ", added.content, " with ", key));
    }
    if (added.content.size() > AddedTokens::kBytesMax) {
      return unsupported(path, absl::StrCat("an added token of ", added.content.size(), " bytes"));
    }
    const auto known = named_.find(added.content);
    if (added.content.empty() || (known != named_.end() && known->second != token)) {
      return absl::DataLossError(absl::StrCat(path, ": added token ", token, " (", added.content,
                                              ") is empty, or another one in the vocabulary"));
    }
    const std::optional<std::string> bytes = bytes_of_written(added.content);
    SKEIN_RETURN_IF_ERROR(put(path, token, bytes ? *bytes : added.content));
    added.token = static_cast<int32_t>(token);
    named_[added.content] = added.token;
    tokens_[static_cast<size_t>(token)].is_special = is_special;
    if (is_normal && composes_) {
      SKEIN_ASSIGN_OR_RETURN(added.content, composed(added.content));
    }
    (is_normal ? normal : as_they_are).push_back(std::move(added));
  }
  added_ = AddedTokens(std::move(as_they_are));
  normal_added_ = AddedTokens(std::move(normal));
  return absl::OkStatus();
}

absl::Status Tokenizer::read_normalizer(const Json& json, const std::string& path) {
  if (json.is_null()) return absl::OkStatus();
  const Json& steps = type_of(json) == "Sequence" ? field_or_null(json, "normalizers") : json;
  for (const Json& step : steps.is_array() ? steps : Json::array({steps})) {
    if (type_of(step) != "NFC") {
      return unsupported(path, absl::StrCat("normalizer ", type_of(step)));
    }
    composes_ = true;
  }
  return absl::OkStatus();
}

/// "ByteLevel" changes no token; a template has one text, and tokens around it.
absl::Status Tokenizer::read_frame(const Json& json, const std::string& path) {
  if (json.is_null()) return absl::OkStatus();
  if (type_of(json) == "Sequence") {
    const Json& all = field_or_null(json, "processors");
    if (!all.is_array()) return unsupported(path, "post_processor Sequence of nothing");
    for (const Json& each : all) {
      if (type_of(each) == "Sequence")
        return unsupported(path, "post_processor within another one");
      SKEIN_RETURN_IF_ERROR(read_frame(each, path));
    }
    return absl::OkStatus();
  }
  if (type_of(json) == "ByteLevel") return absl::OkStatus();
  const Json& parts = field_or_null(json, "single");
  if (type_of(json) != "TemplateProcessing" || !parts.is_array()) {
    return unsupported(path, absl::StrCat("post_processor ", type_of(json)));
  }
  bool is_behind = false;
  for (const Json& part : parts) {
    if (part.contains("Sequence")) {
      is_behind = true;
      continue;
    }
    const Json& id = field_or_null(field_or_null(part, "SpecialToken"), "id");
    const auto token = id.is_string() ? named_.find(id.get<std::string>()) : named_.end();
    if (token == named_.end()) {
      return absl::DataLossError(absl::StrCat(path, ": post_processor names a token that is none"));
    }
    (is_behind ? last_ : first_).push_back(token->second);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  if (!plans::is_utf8(text)) return absl::InvalidArgumentError("the text is no UTF-8");
  std::vector<int32_t> tokens = first_;
  const Take merge = [&](std::string_view piece) { return pairs_.encode(piece, tokens); };
  const Take cut = [&](std::string_view part) { return pieces_.cut(part, merge); };
  const Take normalize = [&](std::string_view part) -> absl::Status {
    if (!composes_) return normal_added_.find(part, tokens, cut);
    SKEIN_ASSIGN_OR_RETURN(const std::string normal, composed(part));
    return normal_added_.find(normal, tokens, cut);
  };
  SKEIN_RETURN_IF_ERROR(added_.find(text, tokens, normalize));
  tokens.insert(tokens.end(), last_.begin(), last_.end());
  return tokens;
}

std::string_view Tokenizer::bytes_of(int32_t token) const {
  const bool is_known = token >= 0 && token < vocab_size();
  return is_known ? std::string_view(tokens_[static_cast<size_t>(token)].bytes) : "";
}

bool Tokenizer::is_special(int32_t token) const {
  return token >= 0 && token < vocab_size() && tokens_[static_cast<size_t>(token)].is_special;
}

}  // namespace skein::gpu
