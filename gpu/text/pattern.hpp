#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::gpu {

/// A regular expression over UTF-8 that cuts text, by PCRE2 with Unicode's classes. Thread-safe.
class Pattern {
 public:
  /// InvalidArgument says what is wrong with the expression, and where.
  static absl::StatusOr<std::unique_ptr<Pattern>> compile(const std::string& expression);
  struct Compiled;
  explicit Pattern(std::unique_ptr<Compiled> compiled);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// Calls `take` for each match and for what lies between matches, in order; together they are
  /// `text`, none is empty. InvalidArgument if the text is no UTF-8, or takes too long.
  absl::Status cut(std::string_view text,
                   const std::function<absl::Status(std::string_view)>& take) const;

 private:
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace skein::gpu
