#include "gpu/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

constexpr size_t kDimensionsMax = 32;
constexpr int kNestingMax = 8;

struct TypeName {
  const char* name;
  TensorType type;
  uint64_t bytes;
};
/// Those of the reference implementation that have whole bytes.
constexpr TypeName kTypes[] = {
    {"F32", TensorType::kF32, 4},       {"F16", TensorType::kF16, 2},
    {"BF16", TensorType::kBf16, 2},     {"F64", TensorType::kOther, 8},
    {"F8_E4M3", TensorType::kOther, 1}, {"F8_E5M2", TensorType::kOther, 1},
    {"F8_E8M0", TensorType::kOther, 1}, {"C64", TensorType::kOther, 8},
    {"I64", TensorType::kOther, 8},     {"I32", TensorType::kOther, 4},
    {"I16", TensorType::kOther, 2},     {"I8", TensorType::kOther, 1},
    {"U64", TensorType::kOther, 8},     {"U32", TensorType::kOther, 4},
    {"U16", TensorType::kOther, 2},     {"U8", TensorType::kOther, 1},
    {"BOOL", TensorType::kOther, 1},
};

absl::Status broken(const std::string& what) {
  return absl::DataLossError(absl::StrCat("not a valid safetensors file: ", what));
}

/// Parses strictly: a name twice in one object, or deep nesting, makes the text invalid.
std::optional<Json> parse_strictly(std::span<const std::byte> text) {
  bool repeated = false;
  std::vector<std::set<std::string>> names;
  auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kNestingMax) repeated = true;
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end && !names.empty()) names.pop_back();
    if (event == Json::parse_event_t::key && !names.empty()) {
      repeated |= !names.back().insert(parsed.get<std::string>()).second;
    }
    return !repeated;
  };
  const auto* begin = reinterpret_cast<const char*>(text.data());
  Json json = Json::parse(begin, begin + text.size(), callback, /*allow_exceptions=*/false);
  if (repeated || json.is_discarded() || !json.is_object()) return std::nullopt;
  return json;
}

bool is_count(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= (uint64_t{1} << 62);
}

absl::StatusOr<TensorEntry> parse_entry(const std::string& name, const Json& json) {
  const bool has_fields = json.is_object() && json.size() == 3 && json.contains("dtype") &&
                          json.contains("shape") && json.contains("data_offsets") &&
                          json["dtype"].is_string() && json["shape"].is_array() &&
                          json["data_offsets"].is_array() && json["data_offsets"].size() == 2;
  if (!has_fields) return broken(absl::StrCat("tensor ", name, " lacks dtype, shape or offsets"));
  TensorEntry entry;
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const TypeName& each) { return json["dtype"] == each.name; });
  if (type == std::end(kTypes)) {
    return broken(absl::StrCat("tensor ", name, " has the unsupported dtype ",
                               json["dtype"].get<std::string>()));
  }
  entry.type = type->type;
  if (json["shape"].size() > kDimensionsMax)
    return broken(absl::StrCat(name, " has too many axes"));
  uint64_t bytes = type->bytes;
  for (const Json& extent : json["shape"]) {
    if (!is_count(extent) || __builtin_mul_overflow(bytes, extent.get<uint64_t>(), &bytes)) {
      return broken(absl::StrCat("tensor ", name, " has an impossible shape"));
    }
    entry.shape.push_back(extent.get<int64_t>());
  }
  const Json& offsets = json["data_offsets"];
  if (!is_count(offsets[0]) || !is_count(offsets[1])) {
    return broken(absl::StrCat("tensor ", name, " has impossible offsets"));
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return broken(absl::StrCat("tensor ", name, " has ", bytes, " bytes by its shape but offsets ",
                               entry.begin, "..", entry.end));
  }
  return entry;
}

/// Tensors must lie one behind the other from 0 to the end.
absl::Status check_cover(const std::map<std::string, TensorEntry>& tensors, uint64_t data_bytes) {
  std::vector<std::pair<const TensorEntry*, const std::string*>> sorted;
  for (const auto& [name, entry] : tensors) sorted.push_back({&entry, &name});
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t next = 0;
  for (const auto& [entry, name] : sorted) {
    if (entry->begin != next) {
      return broken(absl::StrCat("tensor ", *name, " begins at ", entry->begin, ", expected ", next,
                                 " (a hole or an overlap)"));
    }
    next = entry->end;
  }
  if (next != data_bytes) {
    return broken(absl::StrCat("its tensors need ", next, " bytes of data but there are ",
                               data_bytes, " (truncated?)"));
  }
  return absl::OkStatus();
}

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half >> 15) << 31;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1.0p-24F;  // Subnormal or zero.
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 0xff : exponent + 112;
  const uint32_t bits = sign | (wide << 23) | (mantissa << 13);
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float bfloat_to_float(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string make_header(const std::vector<TensorToWrite>& tensors) {
  // Names are in order already; the reference writer puts the metadata first.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t end = offset + tensor.values.size_bytes();
    absl::StrAppend(&header, ",", Json(tensor.name).dump(), R"(:{"dtype":"F32","shape":)",
                    Json(tensor.shape).dump(), R"(,"data_offsets":[)", offset, ",", end, "]}");
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes,
                                                    uint64_t file_bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) return broken("it is shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kSafetensorsHeaderMax || length > file_bytes - sizeof(length) ||
      length > bytes.size() - sizeof(length)) {
    return broken(
        absl::StrCat("its header says it has ", length, " bytes, the file has ", file_bytes));
  }
  const auto text = bytes.subspan(sizeof(length), length);
  if (text.empty() || text.front() != std::byte{'{'}) return broken("its header is no JSON object");
  const std::optional<Json> json = parse_strictly(text);
  if (!json) return broken("its header is no valid JSON object, or has a name twice");
  SafetensorsHeader header;
  header.data_offset = sizeof(length) + length;
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") continue;
    SKEIN_ASSIGN_OR_RETURN(header.tensors[name], parse_entry(name, value));
  }
  SKEIN_RETURN_IF_ERROR(check_cover(header.tensors, file_bytes - header.data_offset));
  return header;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  auto file = std::make_unique<SafetensorsFile>();
  file->path_ = path;
  SKEIN_ASSIGN_OR_RETURN(file->file_, MappedFile::open(path));
  auto header = parse_safetensors(file->contents(), file->file_->bytes());
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat(path, ": ", header.status().message()));
  }
  file->header_ = *std::move(header);
  return file;
}

absl::Status SafetensorsFile::read(const std::string& name, std::span<float> out) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end()) {
    return absl::NotFoundError(absl::StrCat(path_, " has no tensor ", name));
  }
  const TensorEntry& entry = found->second;
  const bool is_half = entry.type == TensorType::kF16 || entry.type == TensorType::kBf16;
  const uint64_t width = is_half ? 2 : 4;
  if ((entry.type != TensorType::kF32 && !is_half) ||
      out.size() * width != entry.end - entry.begin) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor ", name, " has ",
                                                   entry.end - entry.begin, " bytes; expected ",
                                                   out.size(), " floating point numbers"));
  }
  const std::byte* data = file_->data() + header_.data_offset + entry.begin;
  if (!is_half) {
    std::memcpy(out.data(), data, out.size_bytes());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, data + 2 * i, sizeof(half));
    out[i] = entry.type == TensorType::kF16 ? half_to_float(half) : bfloat_to_float(half);
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> write_safetensors(const std::string& path,
                                              std::vector<TensorToWrite> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorToWrite& a, const TensorToWrite& b) { return a.name < b.name; });
  const std::string header = make_header(tensors);
  const uint64_t length = header.size();
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(&length, 1)),
                                                    std::as_bytes(std::span(header))};
  for (const TensorToWrite& tensor : tensors) pieces.push_back(std::as_bytes(tensor.values));
  WrittenFile written;
  for (const auto& piece : pieces) {
    written.bytes += piece.size();
    written.crc32c = crc32c(piece, written.crc32c);
  }
  SKEIN_RETURN_IF_ERROR(write_durably(path, pieces));
  return written;
}

}  // namespace skein::gpu
