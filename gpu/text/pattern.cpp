#include "gpu/text/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Those of known tokenizers have a few hundred bytes.
constexpr size_t kExpressionBytesMax = 16 << 10;
/// Steps that one match may take: words take a few for each byte.
constexpr uint32_t kMatchSteps = 10'000;
/// Those of very long words; a text has few of them.
constexpr uint32_t kSlowMatchSteps = 20'000'000;
constexpr int kSlowMatchesMax = 16;
constexpr uint32_t kHeapKibMax = 256 << 10;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

pcre2_match_context* limits_of(uint32_t steps) {
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);
  if (limits == nullptr) return nullptr;
  pcre2_set_match_limit(limits, steps);
  pcre2_set_heap_limit(limits, kHeapKibMax);
  return limits;
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  pcre2_match_context* slow_limits = nullptr;
  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_match_context_free(slow_limits);
    pcre2_code_free(code);
  }
};

Pattern::Pattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Pattern::~Pattern() = default;

absl::StatusOr<std::unique_ptr<Pattern>> Pattern::compile(const std::string& expression) {
  if (expression.size() > kExpressionBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a regular expression of ", expression.size(), " bytes"));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (compiled->code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression: ", message_of(error), ", at byte ", offset));
  }
  compiled->limits = limits_of(kMatchSteps);
  compiled->slow_limits = limits_of(kSlowMatchSteps);
  if (compiled->limits == nullptr || compiled->slow_limits == nullptr) {
    return absl::ResourceExhaustedError("no memory for a match");
  }
  return std::make_unique<Pattern>(std::move(compiled));
}

absl::Status Pattern::cut(std::string_view text,
                          const std::function<absl::Status(std::string_view)>& take) const {
  using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
  const MatchData match(pcre2_match_data_create_from_pattern(compiled_->code, nullptr),
                        pcre2_match_data_free);
  if (match == nullptr) return absl::ResourceExhaustedError("no memory for a match");
  size_t done = 0;   // What has been taken.
  size_t start = 0;  // Where the next match is looked for.
  uint32_t options = 0;
  int slow_matches = 0;
  while (done < text.size()) {
    const auto match_within = [&](pcre2_match_context* limits) {
      return pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                         start, options, match.get(), limits);
    };
    int found = match_within(compiled_->limits);
    if (found == PCRE2_ERROR_MATCHLIMIT && ++slow_matches <= kSlowMatchesMax) {
      found = match_within(compiled_->slow_limits);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::InvalidArgumentError(absl::StrCat("cannot cut the text: ", message_of(found)));
    }
    options = PCRE2_NO_UTF_CHECK;  // It has been checked by now.
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    if (ends[1] <= ends[0]) {  // An empty match cuts nothing; the next one begins further on.
      start = ends[0] + 1;
      while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) {
        ++start;
      }
      if (start >= text.size()) break;
      continue;
    }
    if (ends[0] > done) SKEIN_RETURN_IF_ERROR(take(text.substr(done, ends[0] - done)));
    SKEIN_RETURN_IF_ERROR(take(text.substr(ends[0], ends[1] - ends[0])));
    done = start = ends[1];
  }
  return done < text.size() ? take(text.substr(done)) : absl::OkStatus();
}

}  // namespace skein::gpu
