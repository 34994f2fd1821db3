// A tokenizer.json: whatever it says, it is refused, or gives tokens that it has for any text.
#include <algorithm>
#include <string>
#include <string_view>

#include "gpu/text/tokenizer.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {
namespace {

/// Stands between the file and the text.
constexpr char kEnd = '\0';

}  // namespace

void run_one(const uint8_t* data, size_t bytes) {
  const std::string_view all(reinterpret_cast<const char*>(data), bytes);
  const size_t end = std::min(all.find(kEnd), all.size());
  const auto json = nlohmann::json::parse(all.substr(0, end), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  const auto tokenizer = gpu::Tokenizer::parse(json, "fuzzed");
  if (!tokenizer.ok()) return;
  const auto tokens = (*tokenizer)->encode(all.substr(std::min(end + 1, all.size())));
  if (!tokens.ok()) return;
  for (const int32_t token : *tokens) {
    if (token < 0 || token >= (*tokenizer)->vocab_size()) __builtin_trap();
    (void)(*tokenizer)->bytes_of(token);
  }
}

size_t short_run() { return 100'000; }

std::vector<std::vector<uint8_t>> seeds() {
  const std::string model =
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,)"
      R"("<e>":5},"merges":["a b"],"ignore_merges":true},"added_tokens":[{"id":5,"content":"<e>",)"
      R"("special":true,"normalized":true}])";
  std::vector<std::vector<uint8_t>> all;
  for (const std::string first :
       {R"("pre_tokenizer":{"type":"ByteLevel"},)",
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
        R"({"Regex":"\\s+|a*"},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]},)"
        R"("normalizer":{"type":"NFC"},"post_processor":{"type":"TemplateProcessing","single":)"
        R"([{"SpecialToken":{"id":"<e>"}},{"Sequence":{"id":"A"}}]},)"}) {
    const std::string text = "{" + first + model + "}" + kEnd + "ab ba<e> aab";
    all.emplace_back(text.begin(), text.end());
  }
  return all;
}

}  // namespace skein::fuzz
