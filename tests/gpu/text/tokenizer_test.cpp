#include "gpu/text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "gpu/text/byte_alphabet.hpp"

namespace skein::gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

/// What Hugging Face's library made: tests/golden/text/make_tokenizers.py.
Json golden() {
  std::ifstream file("tests/golden/text/tokenizers.json");
  return Json::parse(file);
}

/// A field of the model that is changed to null is left out.
Json changed(const Json& golden, const std::string& name) {
  Json json = golden["base"];
  json.merge_patch(Json{{"model", golden["changes"][name].value("model", Json::object())}});
  for (const auto& [key, value] : golden["changes"][name].items()) {
    if (key != "model") json[key] = value;
  }
  return json;
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += tokenizer.bytes_of(token);
  return text;
}

TEST(Tokenizer, CutsAndMergesAsHuggingFaceDoes) {
  const Json all = golden();
  for (const auto& [name, expected] : all["expected"].items()) {
    const auto tokenizer = Tokenizer::parse(changed(all, name), name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (size_t n = 0; n < expected.size(); ++n) {
      const auto text = all["texts"][n].get<std::string>();
      const auto tokens = (*tokenizer)->encode(text);
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      EXPECT_EQ(Json(*tokens), expected[n]) << name << ": " << all["texts"][n].dump();
    }
  }
}

/// As in the file that was published with GPT-2.
TEST(Tokenizer, PairsNeedNoTypeWhereVocabularyAndMergesAreThere) {
  Json untyped = changed(golden(), "untyped");
  EXPECT_FALSE(untyped["model"].contains("type"));
  const absl::Status status = Tokenizer::parse(untyped, "gpt2").status();
  EXPECT_TRUE(status.ok()) << status;
  untyped["model"].erase("merges");
  EXPECT_THAT(std::string(Tokenizer::parse(untyped, "words").status().message()),
              HasSubstr("model without a type is not supported"));
}

TEST(Tokenizer, GivesBackTheBytesOfWhatItEncodes) {
  const Json all = golden();
  const auto tokenizer = Tokenizer::parse(changed(all, "gpt2"), "gpt2").value();
  for (const Json& text : all["texts"]) {
    EXPECT_EQ(decode(*tokenizer, tokenizer->encode(text.get<std::string>()).value()), text);
  }
}

TEST(Tokenizer, ComposesCharactersWhereItIsAskedTo) {
  const Json all = golden();
  const auto tokenizer = Tokenizer::parse(changed(all, "qwen2"), "qwen2").value();
  EXPECT_EQ(decode(*tokenizer, tokenizer->encode("U\u0308ber").value()), "\u00dcber");
}

TEST(Tokenizer, KnowsSpecialTokens) {
  const Json all = golden();
  const auto tokenizer = Tokenizer::parse(changed(all, "llama3"), "llama3").value();
  const std::vector<int32_t> tokens = tokenizer->encode("a").value();
  ASSERT_EQ(tokens.size(), 2);
  EXPECT_TRUE(tokenizer->is_special(tokens[0]));
  EXPECT_EQ(tokenizer->bytes_of(tokens[0]), "<|end|>");
  EXPECT_FALSE(tokenizer->is_special(tokens[1]));
  EXPECT_EQ(tokenizer->bytes_of(-1), "");
  EXPECT_EQ(tokenizer->bytes_of(static_cast<int32_t>(tokenizer->vocab_size())), "");
}

TEST(Tokenizer, MergesALongWordInTimeThatGrowsWithItsLength) {
  const Json all = golden();
  const auto tokenizer = Tokenizer::parse(changed(all, "gpt2"), "gpt2").value();
  const std::string text(1 << 20, 'e');
  EXPECT_EQ(decode(*tokenizer, tokenizer->encode(text).value()), text);
}

/// Each place of the text could be the beginning of all of them.
TEST(Tokenizer, FindsAddedTokensInTimeThatDoesNotGrowWithTheirNumber) {
  const Json all = golden();
  Json json = changed(all, "gpt2");
  const auto add = [&json](int64_t token, const std::string& content) {
    json["added_tokens"].push_back({{"id", token}, {"content", content}});
  };
  add(500, "<a");
  add(501, "<a>");
  for (int64_t token = 1000; token < 101'000; ++token) {
    add(token, "<aaaaaaaa" + std::to_string(token) + ">");
  }
  const auto tokenizer = Tokenizer::parse(json, "many").value();
  const int32_t open = tokenizer->encode("<").value().front();
  const int32_t close = tokenizer->encode(">").value().front();
  EXPECT_EQ(tokenizer->encode("<a><a<aaaaaaaa1000><aaaaaaaa1000").value().front(), 501);
  EXPECT_EQ(tokenizer->encode("<aaaaaaaa100999>").value(), std::vector<int32_t>{100'999});
  EXPECT_EQ(tokenizer->encode("<a<a>>").value(), (std::vector<int32_t>{500, 501, close}));
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, '<') + "a>").value().back(), 501);
  EXPECT_EQ(tokenizer->encode("<<a").value(), (std::vector<int32_t>{open, 500}));
  add(101'000, std::string(1025, '<'));
  EXPECT_THAT(std::string(Tokenizer::parse(json, "many").status().message()),
              HasSubstr("an added token of 1025 bytes"));
}

TEST(Tokenizer, RefusesTextThatIsNoUtf8) {
  const Json all = golden();
  const auto tokenizer = Tokenizer::parse(changed(all, "gpt2"), "gpt2").value();
  EXPECT_THAT(std::string(tokenizer->encode("a\xff").status().message()), HasSubstr("UTF-8"));
}

struct Refusal {
  const char* pointer;  // What is changed.
  Json value;
  const char* message;
};

TEST(Tokenizer, NamesWhatItDoesNotFollow) {
  const std::vector<Refusal> refusals = {
      {"/model/type", "WordPiece", "WordPiece"},
      {"/model/byte_fallback", true, "byte_fallback"},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/model/vocab", Json::object(), "vocab"},
      {"/model/vocab/!", -1, "token number for !"},
      {"/model/vocab/!", 1e9, "token number for !"},
      {"/model/merges", "none", "merges"},
      {"/model/merges/0", "one", "merge 0 is no pair"},
      {"/model/merges/0", "zq qz", "zq is no token"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer Lowercase"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "Metaspace"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "Removed"},
      {"/pre_tokenizer/pretokenizers/0/invert", true, "inverted"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a", "at byte 2"},
      {"/decoder", nullptr, "decoder"},
      {"/decoder", {{"type", "Fuse"}}, "decoder"},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "RobertaProcessing"},
      {"/post_processor/processors/1/single/0/SpecialToken/id", "<s>", "a token that is none"},
      {"/added_tokens/0/lstrip", true, "lstrip"},
      {"/added_tokens/0/id", 5, "added token 5"},
      {"/added_tokens/1/id", 1 << 30, "out of range"},
      {"/added_tokens/0/content", 3, "content"},
  };
  const Json all = golden();
  const Json whole = changed(all, "llama3");
  ASSERT_TRUE(Tokenizer::parse(whole, "whole").ok());
  for (const Refusal& each : refusals) {
    Json broken = whole;
    broken[Json::json_pointer(each.pointer)] = each.value;
    const absl::Status status = Tokenizer::parse(broken, "t.json").status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.message)) << each.pointer;
    EXPECT_THAT(std::string(status.message()), HasSubstr("t.json")) << each.pointer;
  }
}

TEST(Tokenizer, NamesAFileThatIsNotThereOrIsCut) {
  EXPECT_EQ(Tokenizer::open("/nope/tokenizer.json").status().code(), absl::StatusCode::kNotFound);
  const std::string path = testing::TempDir() + "cut_tokenizer.json";
  std::ofstream(path) << changed(golden(), "gpt2").dump().substr(0, 1000);
  EXPECT_THAT(std::string(Tokenizer::open(path).status().message()), HasSubstr(path));
}

TEST(ByteAlphabet, WritesEachByteAsACharacterAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_written(written_of_bytes(all)), all);
  EXPECT_EQ(written_of_bytes(" a\n"), "\u0120a\u010a");
  EXPECT_FALSE(bytes_of_written("a b").has_value());
  EXPECT_FALSE(bytes_of_written("\xff").has_value());
  EXPECT_FALSE(bytes_of_written("\u96c1").has_value());
}

TEST(Pattern, CutsTextIntoMatchesAndTheRest) {
  const auto cut = [](const std::string& expression, const std::string& text) {
    std::vector<std::string> pieces;
    const auto pattern = Pattern::compile(expression, "here").value();
    MatchBudget budget(text.size());
    const absl::Status status = pattern->cut(text, budget, [&pieces](std::string_view piece) {
      pieces.emplace_back(piece);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return pieces;
  };
  EXPECT_THAT(cut("b+", "abbcb"), testing::ElementsAre("a", "bb", "c", "b"));
  EXPECT_THAT(cut("b*", "\u00e9bb"), testing::ElementsAre("\u00e9", "bb"));
  EXPECT_THAT(cut("x", ""), testing::IsEmpty());
}

absl::Status try_to_cut(const std::string& expression, const std::string& text,
                        MatchBudget& budget) {
  const auto take = [](std::string_view) { return absl::OkStatus(); };
  return Pattern::compile(expression, "t.json: pre_tokenizer").value()->cut(text, budget, take);
}

TEST(Pattern, RefusesAnExpressionOfManyGroups) {
  std::string expression;
  for (int n = 0; n < 64; ++n) expression += "(a)";
  EXPECT_TRUE(Pattern::compile(expression, "here").ok());
  const absl::Status status = Pattern::compile(expression + "(a)", "here").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("here: a regular expression of 65 groups"));
}

/// Each match ends some time, but for all of them one would wait for minutes.
TEST(Pattern, GivesUpATextThatTakesTooLong) {
  std::string text;
  for (int n = 0; n < 200; ++n) text += std::string(18, 'a') + " ";
  // The second one matches nowhere, so that each place of the text is tried in one search.
  for (const char* expression : {"(?:a+)+b|.", "(?:a+)+[bc]"}) {
    MatchBudget budget(text.size());
    // A step takes from 30 to 100 ns.
    EXPECT_LE(budget.steps, 2'000'000);
    const absl::Status status = try_to_cut(expression, text, budget);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("t.json: pre_tokenizer: "), HasSubstr("3800 bytes of text")));
    EXPECT_EQ(budget.steps, 0u) << "nothing is left for another match";
  }
}

/// A loop that gives nothing back reads on to the end of the text at each of its places, in one
/// step.
TEST(Pattern, GivesUpATextThatIsReadToItsEndTooOften) {
  const std::string text(1 << 16, 'a');
  for (const char* expression : {"[^x]*+x", "(?:[^x]*+x|[^y]*+y)"}) {
    MatchBudget budget(text.size());
    budget.steps /= 32;  // All of them take seconds.
    const absl::Status status = try_to_cut(expression, text, budget);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("65536 bytes of text"));
    EXPECT_EQ(budget.steps, 0u) << "nothing is left for another match";
  }
}

/// What the first try at a place does not see decides where the match ends.
TEST(Pattern, AMatchMayBeLongAndLookAroundItself) {
  const auto pieces = [](const std::string& expression, const std::string& text) {
    std::vector<size_t> bytes;
    MatchBudget budget(text.size());
    const auto take = [&bytes](std::string_view piece) {
      bytes.push_back(piece.size());
      return absl::OkStatus();
    };
    EXPECT_TRUE(Pattern::compile(expression, "here").value()->cut(text, budget, take).ok());
    return bytes;
  };
  for (size_t count = 200; count < 300; ++count) {
    const std::string blanks(count, ' ');
    std::string umlauts;
    for (size_t n = 0; n < count; ++n) umlauts += "\u00e4";
    EXPECT_EQ(pieces("\\s+(?!\\S)|.", blanks + "b"), (std::vector<size_t>{count - 1, 1, 1}));
    EXPECT_EQ(pieces("\\s+$", blanks), std::vector<size_t>{count});
    EXPECT_EQ(pieces("a{" + std::to_string(count) + "}", std::string(2 * count, 'a')),
              (std::vector<size_t>{count, count}));
    EXPECT_EQ(pieces("(?<=a)\\p{L}+\\b", "a" + umlauts + " c"),
              (std::vector<size_t>{1, 2 * count, 2}));
  }
}

TEST(Pattern, WordsThatAreMerelyLongAreCut) {
  const std::string words = std::string(100'000, 'a') + " " + std::string(100'000, 'a');
  for (const char* expression :
       {"a+| ", " ?[^\\s\\p{L}\\p{N}]+|(?:a|aa)+| ", "\\s*[\\r\\n]+|\\p{Lu}*\\p{L}+x|\\p{L}+"}) {
    MatchBudget budget(words.size());
    const absl::Status status = try_to_cut(expression, words, budget);
    EXPECT_TRUE(status.ok()) << status;
  }
}

/// A text of many pieces, each cut once more, has no more steps than one of a single piece.
TEST(Tokenizer, GivesUpATextThatTakesTooLongAndNamesTheFile) {
  const Json all = golden();
  Json slow = changed(all, "llama3");
  const Json words = {
      {"type", "Split"}, {"pattern", {{"Regex", "a+| "}}}, {"behavior", "Isolated"}};
  Json nested = words;
  nested["pattern"]["Regex"] = "(?:a+)+b|.";
  slow["pre_tokenizer"]["pretokenizers"] = {
      words, nested, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}};
  const auto tokenizer = Tokenizer::parse(slow, "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  for (int n = 0; n < 200; ++n) text += std::string(18, 'a') + " ";
  const absl::Status status = (*tokenizer)->encode(text).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("t.json: pre_tokenizer: "));
}

}  // namespace
}  // namespace skein::gpu
