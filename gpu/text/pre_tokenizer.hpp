#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/text/pattern.hpp"

namespace skein::gpu {

/// Cuts text into the pieces in which pairs are merged: the `pre_tokenizer` of a tokenizer.json.
/// Thread-safe.
class PreTokenizer {
 public:
  /// Reads "ByteLevel", "Split" with a pattern whose matches are isolated, "Digits" one by one, and
  /// sequences of these that end with "ByteLevel". InvalidArgument names what else is there;
  /// DataLoss if a field is missing. `path` is the file's, for messages.
  static absl::StatusOr<PreTokenizer> read(const nlohmann::json& json, const std::string& path);

  /// Calls `take` for each piece, in order; in time in proportion to the text's length.
  /// InvalidArgument as `Pattern::cut`.
  absl::Status cut(std::string_view text,
                   const std::function<absl::Status(std::string_view)>& take) const;

 private:
  absl::Status add(const nlohmann::json& json, const std::string& path);
  absl::Status add_byte_level(const nlohmann::json& json, const std::string& path);
  absl::Status add_pattern(const std::string& expression, const std::string& path);
  absl::Status cut_from(size_t step, std::string_view text, MatchBudget& budget,
                        const std::function<absl::Status(std::string_view)>& take) const;

  /// One after the other: each cuts the pieces of the one before.
  std::vector<std::shared_ptr<const Pattern>> steps_;
  bool is_byte_level_ = false;  // The last one has been seen.
  bool adds_space_ = false;     // Before a text that does not begin with one.
};

}  // namespace skein::gpu
