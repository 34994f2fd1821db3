#include "cli/config/profile_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/files/durable_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using testing::HasSubstr;

plans::Profile odd_profile() {
  plans::Profile profile;
  profile.source = "measured";
  profile.device = "cpu \"x1\"\n";
  profile.rows = {1, 3, 8};
  profile.state_factor = 3.1;
  profile.activation_factor = 0.25;
  profile.gradient_factor = 0.5;
  profile.update_us_per_byte = 1e-5 / 3;
  profile.tied_bytes = 65536;  // At most the bytes of the first and of the last layer.
  for (int l = 0; l < 5; ++l) {
    plans::LayerProfile layer;
    layer.name = "layer " + std::to_string(l);
    for (int64_t rows : profile.rows) {
      const double time = static_cast<double>(rows) * (l + 1) / 7;
      layer.at.push_back({time, time / 3, time * 1.1});
    }
    layer.activation_row_bytes = 1000 + l;
    layer.stash_row_bytes = (int64_t{1} << 40) + l;
    layer.parameter_bytes = 123456789 * (l + 1);
    profile.layers.push_back(layer);
  }
  return profile;
}

/// A profile of two layers in which `from` is replaced by `to`.
std::string profile_with(const std::string& from, const std::string& to) {
  std::string text = R"({
  "format": "skein-profile-1",
  "rows": [1, 4],
  "tied_bytes": 0,
  "layers": [
    {"name": "a", "forward_us": [1, 2], "backward_us": [2, 4], "parameter_bytes": 8},
    {"name": "b", "forward_us": [3, 6], "backward_input_us": [3, 6], "backward_weight_us": [2, 4]}
  ]
})";
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfileFile, ReadsWhatItWrites) {
  const plans::Profile profile = odd_profile();
  const auto back = parse_profile(to_json(profile), "p.json");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, profile);
}

TEST(ProfileFile, SavesAndLoadsFiles) {
  const tests::TemporaryFolder folder;
  ASSERT_TRUE(save_profile(folder.file("p.json"), odd_profile()).ok());
  const auto back = load_profile(folder.file("p.json"));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, odd_profile());
}

TEST(ProfileFile, AFailedWriteLeavesTheOldProfile) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("p.json");
  ASSERT_TRUE(save_profile(path, odd_profile()).ok());
  plans::Profile other = odd_profile();
  other.device = "another";
  bool saved = false;
  for (int64_t k = 1; k < 100 && !saved; ++k) {
    gpu::fail_file_operation(k);
    saved = save_profile(path, other).ok();
    gpu::fail_file_operation(0);
    const auto back = load_profile(path);
    ASSERT_TRUE(back.ok()) << back.status();
    if (!saved) {
      EXPECT_TRUE(*back == odd_profile() || *back == other);
    }
  }
  EXPECT_TRUE(saved);
}

TEST(ProfileFile, HalvesAWholeBackward) {
  const auto profile = parse_profile(profile_with("\"a\"", "\"a\""), "p.json");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->layers[0].at[1], (plans::LayerTimes{2, 2, 2}));
  EXPECT_EQ(profile->layers[1].at[0], (plans::LayerTimes{3, 3, 2}));
  EXPECT_EQ(profile->state_factor, 4);
  EXPECT_EQ(profile->activation_factor, 1);
}

TEST(ProfileFile, TakesBareNumbersWhereThereIsOneNumberOfRows) {
  const auto profile = parse_profile(
      R"({"format":"skein-profile-1","layers":[{"forward_us":1.5,"backward_us":3}]})", "p.json");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->rows, std::vector<int64_t>{1});
  EXPECT_EQ(profile->layers[0].at[0], (plans::LayerTimes{1.5, 1.5, 1.5}));
}

struct BadProfile {
  std::string from;
  std::string to;
  std::string message;  // All of it that matters.
};

TEST(ProfileFile, SaysWhatIsWrongAndWhere) {
  const std::vector<BadProfile> table = {
      {"\"rows\": [1, 4],", "\"rows\": [1, 4]", "p.json:4: syntax error"},
      {"[1, 4]", "[1, x]", "p.json:3: syntax error"},
      {"skein-profile-1", "skein-profile-9", "format: expected \"skein-profile-1\""},
      {"\"format\": \"skein-profile-1\",", "", "format: expected"},
      {"\"tied_bytes\"", "\"tied_byte\"", "tied_byte: unknown key (did you mean tied_bytes?)"},
      {"\"tied_bytes\": 0", "\"tied_bytes\": -1", "tied_bytes: expected an integer of 0 or more"},
      {"\"tied_bytes\": 0", "\"tied_bytes\": 0.5", "tied_bytes: expected an integer"},
      {"\"tied_bytes\": 0", "\"tied_bytes\": 1e30", "tied_bytes: expected an integer"},
      {"[1, 4]", "[4, 1]", "rows[1]: 1 does not ascend"},
      {"[1, 4]", "[0, 4]", "rows[0]: expected an integer of 1 or more, got 0"},
      {"[1, 4]", "[]", "rows: expected a list of ascending integers"},
      {"[1, 4]", "3", "rows: expected a list of ascending integers"},
      {"[1, 4]", "[1, 4, 8]", "layers[0].forward_us: expected a list of 3 times"},
      {"\"forward_us\": [3, 6], ", "", "layers[1].forward_us: missing"},
      {"\"forward_us\": [3, 6]", "\"forward_us\": [3, -6]",
       "layers[1].forward_us[1]: expected a number of 0 or more, got -6"},
      {"\"forward_us\": [3, 6]", "\"forward_us\": 3", "layers[1].forward_us: expected a list of 2"},
      {"\"backward_input_us\"", "\"backward_us\"",
       "layers[1].backward_us: give either it or backward_input_us"},
      {", \"backward_weight_us\": [2, 4]", "", "layers[1].backward_weight_us: missing"},
      {"\"parameter_bytes\": 8", "\"parameter_byte\": 8",
       "layers[0].parameter_byte: unknown key (did you mean parameter_bytes?)"},
      {"\"parameter_bytes\": 8", "\"parameter_bytes\": \"8\"", "layers[0].parameter_bytes: "},
      {"\"name\": \"a\"", "\"name\": 3", "layers[0].name: expected text, got 3"},
  };
  for (const BadProfile& bad : table) {
    const auto profile = parse_profile(profile_with(bad.from, bad.to), "p.json");
    ASSERT_FALSE(profile.ok()) << bad.to;
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr(bad.message));
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr("p.json:"));
    EXPECT_EQ(profile.status().message().find('\n'), std::string::npos) << profile.status();
  }
}

TEST(ProfileFile, RefusesWhatIsNoProfileAtAll) {
  for (const char* text : {"", "[]", "3", "null", "{}", "\"text\"", "{\"layers\": []}",
                           "{\"format\":\"skein-profile-1\",\"layers\":[]}",
                           "{\"format\":\"skein-profile-1\",\"layers\":[3]}"}) {
    const auto profile = parse_profile(text, "p.json");
    ASSERT_FALSE(profile.ok()) << text;
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr("p.json"));
  }
  EXPECT_THAT(std::string(load_profile("/none/p.json").status().message()),
              HasSubstr("no profile /none/p.json"));
}

TEST(ProfileFile, TheExampleOfTheDocumentationIsRead) {
  std::ifstream file("docs/profile.md");
  std::ostringstream text;
  text << file.rdbuf();
  const size_t begin = text.str().find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.str().find("```", begin + 3);
  const std::string example = text.str().substr(begin + 8, end - begin - 8);
  EXPECT_TRUE(parse_profile(example, "docs/profile.md").ok())
      << parse_profile(example, "docs/profile.md").status();
}

}  // namespace
}  // namespace skein::cli
