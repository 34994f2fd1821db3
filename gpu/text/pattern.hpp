#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::gpu {

/// Steps that all matches in a text may take together, beyond the few that each one has anyway, so
/// that the time for a text is in proportion to its length; what they read far ahead counts as
/// steps, too. Of one thread.
struct MatchBudget {
  explicit MatchBudget(size_t text_bytes);
  uint64_t steps;
};

/// A regular expression over UTF-8 that cuts text, by PCRE2 with Unicode's classes. Thread-safe.
class Pattern {
 public:
  /// `place`: the file and the key that it is from, with which messages begin.
  /// InvalidArgument says what is wrong with the expression, and where.
  static absl::StatusOr<std::unique_ptr<Pattern>> compile(const std::string& expression,
                                                          const std::string& place);
  struct Compiled;
  explicit Pattern(std::unique_ptr<Compiled> compiled);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// Calls `take` for each match and for what lies between matches, in order; together they are
  /// `text`, none is empty. Matches take what they need of `budget`.
  /// InvalidArgument if the text is no UTF-8, or the budget does not last.
  absl::Status cut(std::string_view text, MatchBudget& budget,
                   const std::function<absl::Status(std::string_view)>& take) const;

 private:
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace skein::gpu
