#include "cli/config/profile_file.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/job_keys.hpp"
#include "cli/config/json_text.hpp"
#include "cli/config/text_file.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr const char* kFormat = "skein-profile-1";
constexpr size_t kLayersMax = 100'000;  // A hundred times the deepest model in use.
constexpr size_t kRowsMax = 1000;       // Numbers of rows that somebody would measure.
/// Bytes beyond are a slip of the pen, and would not be exact as a double.
constexpr double kBytesMax = 9007199254740992;

const std::vector<std::string> kKeys = {"format",          "source",
                                        "device",          "rows",
                                        "state_factor",    "activation_factor",
                                        "gradient_factor", "update_us_per_byte",
                                        "tied_bytes",      "layers"};
const std::vector<std::string> kLayerKeys = {"name",
                                             "forward_us",
                                             "backward_us",
                                             "backward_input_us",
                                             "backward_weight_us",
                                             "activation_row_bytes",
                                             "stash_row_bytes",
                                             "parameter_bytes"};

/// Reads the values of one object and remembers the first complaint.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string path, const std::string& file)
      : object_(object), path_(std::move(path)), file_(file) {}

  void check_keys(const std::vector<std::string>& known) {
    if (!object_.is_object()) return complain("", "expected an object {...}");
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        complain(key, absl::StrCat("unknown key", suggestion(key, known)));
      }
    }
  }
  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }

  void text(const char* key, std::string& value) {
    if (!has(key)) return;
    const Json& json = object_[key];
    if (!json.is_string())
      return complain(key, absl::StrCat("expected text, got ", json_text(json)));
    value = json.get<std::string>();
  }
  void number(const char* key, double& value) {
    if (has(key)) value = number_of(object_[key], key);
  }
  void bytes(const char* key, int64_t& value) {
    if (has(key)) value = whole_of(object_[key], key, 0);
  }
  /// A list of one number per entry of `count`, or a bare number where `count` is 1.
  std::vector<double> times(const char* key, size_t count) {
    std::vector<double> values(count, 0);
    if (!has(key)) {
      complain(key, "missing");
      return values;
    }
    const Json& json = object_[key];
    if (count == 1 && json.is_number()) return {number_of(json, key)};
    if (!json.is_array() || json.size() != count) {
      complain(key, absl::StrCat("expected a list of ", count,
                                 " times, one per entry of rows, got ", json_text(json)));
      return values;
    }
    for (size_t i = 0; i < count; ++i) {
      values[i] = number_of(json[i], absl::StrCat(key, "[", i, "]"));
    }
    return values;
  }
  double number_of(const Json& json, const std::string& key) {
    const double value = json.is_number() ? json.get<double>() : -1;
    if (!(value >= 0) || !std::isfinite(value)) {
      complain(key, absl::StrCat("expected a number of 0 or more, got ", json_text(json)));
      return 0;
    }
    return value;
  }
  int64_t whole_of(const Json& json, const std::string& key, int64_t least) {
    const double value = json.is_number() ? json.get<double>() : -1;
    if (!(value >= static_cast<double>(least)) || value > kBytesMax || value != std::floor(value)) {
      complain(key,
               absl::StrCat("expected an integer of ", least, " or more, got ", json_text(json)));
      return least;
    }
    return static_cast<int64_t>(value);
  }
  void complain(const std::string& key, const std::string& what) {
    if (!status_.ok()) return;
    const std::string place = absl::StrCat(path_, path_.empty() || key.empty() ? "" : ".", key);
    status_ = absl::InvalidArgumentError(
        absl::StrCat(file_, ": ", place, place.empty() ? "" : ": ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& object_;
  std::string path_;
  const std::string& file_;
  absl::Status status_;
};

absl::StatusOr<plans::LayerProfile> read_layer(const Json& json, size_t index, size_t rows,
                                               const std::string& file) {
  plans::LayerProfile layer;
  layer.name = absl::StrCat("layer ", index);
  ObjectReader reader(json, absl::StrCat("layers[", index, "]"), file);
  reader.check_keys(kLayerKeys);
  SKEIN_RETURN_IF_ERROR(reader.status());
  reader.text("name", layer.name);
  const std::vector<double> forward = reader.times("forward_us", rows);
  std::vector<double> input(rows);
  std::vector<double> weight(rows);
  if (reader.has("backward_us")) {
    if (reader.has("backward_input_us") || reader.has("backward_weight_us")) {
      reader.complain("backward_us", "give either it or backward_input_us and backward_weight_us");
    }
    input = reader.times("backward_us", rows);
    for (double& time : input) time /= 2;
    weight = input;
  } else {
    input = reader.times("backward_input_us", rows);
    weight = reader.times("backward_weight_us", rows);
  }
  for (size_t i = 0; i < rows; ++i) layer.at.push_back({forward[i], input[i], weight[i]});
  reader.bytes("activation_row_bytes", layer.activation_row_bytes);
  reader.bytes("stash_row_bytes", layer.stash_row_bytes);
  reader.bytes("parameter_bytes", layer.parameter_bytes);
  SKEIN_RETURN_IF_ERROR(reader.status());
  return layer;
}

absl::Status read_rows(ObjectReader& reader, const Json& json, plans::Profile& profile) {
  profile.rows = {1};
  if (!reader.has("rows")) return absl::OkStatus();
  const Json& rows = json["rows"];
  if (!rows.is_array() || rows.empty() || rows.size() > kRowsMax) {
    reader.complain("rows", absl::StrCat("expected a list of ascending integers such as [1, 8]"));
    return reader.status();
  }
  profile.rows.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string key = absl::StrCat("rows[", i, "]");
    const int64_t value = reader.whole_of(rows[i], key, 1);
    if (!profile.rows.empty() && value <= profile.rows.back()) {
      reader.complain(key, absl::StrCat(value, " does not ascend"));
    }
    profile.rows.push_back(value);
  }
  return reader.status();
}

absl::StatusOr<plans::Profile> read_profile(const Json& json, const std::string& file) {
  plans::Profile profile;
  ObjectReader reader(json, "", file);
  reader.check_keys(kKeys);
  SKEIN_RETURN_IF_ERROR(reader.status());
  std::string format;
  reader.text("format", format);
  if (format != kFormat) {
    reader.complain("format", absl::StrCat("expected \"", kFormat, "\", got \"", format, "\""));
  }
  reader.text("source", profile.source);
  reader.text("device", profile.device);
  reader.number("state_factor", profile.state_factor);
  reader.number("activation_factor", profile.activation_factor);
  reader.number("gradient_factor", profile.gradient_factor);
  reader.number("update_us_per_byte", profile.update_us_per_byte);
  reader.bytes("tied_bytes", profile.tied_bytes);
  SKEIN_RETURN_IF_ERROR(reader.status());
  SKEIN_RETURN_IF_ERROR(read_rows(reader, json, profile));
  if (!json.contains("layers") || !json["layers"].is_array() || json["layers"].empty() ||
      json["layers"].size() > kLayersMax) {
    reader.complain("layers", "expected a list of at least one layer");
    return reader.status();
  }
  for (size_t i = 0; i < json["layers"].size(); ++i) {
    SKEIN_ASSIGN_OR_RETURN(plans::LayerProfile layer,
                           read_layer(json["layers"][i], i, profile.rows.size(), file));
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

Json times_json(const plans::LayerProfile& layer, double plans::LayerTimes::*field) {
  Json times = Json::array();
  for (const plans::LayerTimes& at : layer.at) times.push_back(at.*field);
  return times;
}

Json layer_json(const plans::LayerProfile& layer) {
  return {{"name", layer.name},
          {"forward_us", times_json(layer, &plans::LayerTimes::forward_us)},
          {"backward_input_us", times_json(layer, &plans::LayerTimes::backward_input_us)},
          {"backward_weight_us", times_json(layer, &plans::LayerTimes::backward_weight_us)},
          {"activation_row_bytes", layer.activation_row_bytes},
          {"stash_row_bytes", layer.stash_row_bytes},
          {"parameter_bytes", layer.parameter_bytes}};
}

}  // namespace

absl::StatusOr<plans::Profile> parse_profile(const std::string& text, const std::string& file) {
  const Json json = parse_json(text);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", json_complaint(text)));
  }
  SKEIN_ASSIGN_OR_RETURN(plans::Profile profile, read_profile(json, file));
  if (absl::Status status = plans::validate(profile); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(status.message())));
  }
  return profile;
}

absl::StatusOr<plans::Profile> load_profile(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "profile"));
  return parse_profile(text, path);
}

std::string to_json(const plans::Profile& profile) {
  const Json head = {{"format", kFormat},
                     {"source", profile.source},
                     {"device", profile.device},
                     {"rows", profile.rows},
                     {"state_factor", profile.state_factor},
                     {"activation_factor", profile.activation_factor},
                     {"gradient_factor", profile.gradient_factor},
                     {"update_us_per_byte", profile.update_us_per_byte},
                     {"tied_bytes", profile.tied_bytes}};
  std::string text = "{\n";
  for (const auto& [key, value] : head.items()) {
    absl::StrAppend(&text, "  \"", key, "\": ", json_text(value), ",\n");
  }
  absl::StrAppend(&text, "  \"layers\": [");
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n    " : ",\n    ", json_text(layer_json(profile.layers[i])));
  }
  return text + "\n  ]\n}\n";
}

absl::Status save_profile(const std::string& path, const plans::Profile& profile) {
  return gpu::write_durably(path, to_json(profile));
}

}  // namespace skein::cli
