#include "gpu/checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "gpu/checkpoint/crc32c.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<SafetensorsHeader> parse(const std::string& json, uint64_t data_bytes,
                                        uint64_t length) {
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += json;
  return parse_safetensors(std::as_bytes(std::span(file)), file.size() + data_bytes);
}
absl::StatusOr<SafetensorsHeader> parse(const std::string& json, uint64_t data_bytes) {
  return parse(json, data_bytes, json.size());
}

TEST(Crc32c, KnowsThePublishedAnswers) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xe3069283u);
}

TEST(Crc32c, IsTheSameByTablesAtEveryLengthAndOffset) {
  std::vector<std::byte> bytes(64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  const std::span<const std::byte> all(bytes);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; begin + count <= all.size(); ++count) {
      const auto part = all.subspan(begin, count);
      EXPECT_EQ(crc32c(part, 0x1234u), crc32c_by_tables(part, 0x1234u)) << begin << " " << count;
    }
  }
}

TEST(Safetensors, RoundTripsAndPadsItsHeader) {
  tests::TemporaryFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {7};
  const auto written =
      write_safetensors(folder.file("x"), {{"b", {1}, b}, {"a", {2, 3}, a}, {"empty", {0, 4}, {}}});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto file = SafetensorsFile::open(folder.file("x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(crc32c((*file)->contents()), written->crc32c);
  EXPECT_EQ((written->bytes - 28) % 8, 0u);
  EXPECT_EQ((*file)->tensors().at("a").shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> read(6);
  ASSERT_TRUE((*file)->read("a", read).ok());
  EXPECT_EQ(read, a);
  EXPECT_TRUE(absl::IsNotFound((*file)->read("c", read)));
  EXPECT_TRUE(absl::IsInvalidArgument((*file)->read("b", read)));
}

TEST(Safetensors, ReadsHalfPrecision) {
  tests::TemporaryFolder folder;
  const std::string json = R"({"f":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},)"
                           R"("g":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}})";
  const uint64_t length = json.size();
  const uint16_t data[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x3f80, 0xc040};
  std::ofstream out(folder.file("h"), std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << json;
  out.write(reinterpret_cast<const char*>(data), sizeof(data));
  out.close();
  const auto file = SafetensorsFile::open(folder.file("h"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> f(4), g(2);
  ASSERT_TRUE((*file)->read("f", f).ok());
  ASSERT_TRUE((*file)->read("g", g).ok());
  EXPECT_EQ(f, (std::vector<float>{1, -2, 0x1p-24F, 65504}));
  EXPECT_EQ(g, (std::vector<float>{1, -3}));
}

TEST(Safetensors, RefusesEveryTruncation) {
  tests::TemporaryFolder folder;
  const std::vector<float> a(10, 1);
  ASSERT_TRUE(write_safetensors(folder.file("x"), {{"a", {10}, a}}).ok());
  std::ifstream in(folder.file("x"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto part = std::as_bytes(std::span(whole)).first(length);
    EXPECT_TRUE(absl::IsDataLoss(parse_safetensors(part, length).status())) << length;
  }
}

/// Masks and quantized weights, of which a folder's other tensors may be read all the same.
TEST(Safetensors, KnowsTypesWhoseNumbersAreNotRead) {
  const std::pair<const char*, int> types[] = {
      {"F64", 8},     {"I64", 8},  {"U64", 8},     {"C64", 8},    {"I32", 4},
      {"U32", 4},     {"I16", 2},  {"U16", 2},     {"I8", 1},     {"U8", 1},
      {"F8_E4M3", 1}, {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [name, bytes] : types) {
    const std::string header = std::string(R"({"a":{"dtype":")") + name +
                               R"(","shape":[3],"data_offsets":[0,)" + std::to_string(3 * bytes) +
                               "]}}";
    const auto parsed = parse(header, static_cast<uint64_t>(3 * bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->tensors.at("a").type, TensorType::kOther) << name;
  }
}

TEST(Safetensors, RefusesWhatIsNoValidHeader) {
  const std::string one = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_TRUE(parse("{" + one + "}", 8).ok());
  EXPECT_TRUE(parse("{" + one + "}   ", 8).ok());
  EXPECT_TRUE(parse(R"({"__metadata__":{"format":"pt"}})", 0).ok());
  auto refused = [](const std::string& json, uint64_t bytes) {
    return std::string(parse(json, bytes).status().message());
  };
  EXPECT_THAT(refused("{" + one + "}", 4), HasSubstr("truncated"));
  EXPECT_THAT(refused("{" + one + "}", 12), HasSubstr("need 8 bytes"));
  EXPECT_THAT(refused("{" + one + "," + one + "}", 8), HasSubstr("twice"));
  EXPECT_THAT(refused("[1]", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refused("{", 0), HasSubstr("JSON"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 16),
              HasSubstr("hole"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", 7),
              HasSubstr("by its shape"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],)"
                      R"("data_offsets":[0,0]}})",
                      0),
              HasSubstr("impossible shape"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8),
              HasSubstr("impossible shape"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("unsupported dtype"));
  EXPECT_THAT(refused(R"({"a":7})", 8), HasSubstr("lacks"));
  EXPECT_FALSE(parse("{" + one + "}", 8, uint64_t{1} << 60).ok()) << "an absurd length";
}

}  // namespace
}  // namespace skein::gpu
