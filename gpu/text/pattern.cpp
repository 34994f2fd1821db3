#include "gpu/text/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/readable_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Those of known tokenizers have a few hundred bytes.
constexpr size_t kExpressionBytesMax = 16 << 10;
/// Those have a few; each step copies what all groups have matched.
constexpr uint32_t kGroupsMax = 64;
/// Steps that a match may take at one place of the text: those of known tokenizers take up to 32.
constexpr uint32_t kMatchSteps = 200;
/// Steps beyond these that a text has for each of its bytes: very long words take 2. Some 10
/// million take a second on a slow machine, so that it gives up a few KB in less.
constexpr uint64_t kByteSteps = 500;
/// Each try of a match that takes more has so many times the steps of the one before, or sees so
/// many times its bytes.
constexpr uint64_t kTryGrowth = 8;
/// Bytes that the first try at a place of the text sees: known tokenizers' pieces are shorter.
constexpr size_t kWindowBytes = 256;
/// A step may read all that its try sees. So many bytes take as long as a step at the most.
constexpr uint64_t kStepBytes = 32;
constexpr uint32_t kHeapKibMax = 256 << 10;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

absl::Status cannot_cut(int error, size_t bytes, const std::string& place) {
  if (error != PCRE2_ERROR_MATCHLIMIT && error != PCRE2_ERROR_HEAPLIMIT) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": cannot cut the text: ", message_of(error)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": its regular expression takes too long to cut ", bytes,
                   " bytes of text (", message_of(error),
                   "); write it so that a match can be found in one way only, or use another "
                   "tokenizer"));
}

/// Where the character behind the one at `at` begins.
size_t behind(std::string_view text, size_t at) {
  do {
    ++at;
  } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

/// Where the character that has the byte at `at` begins, or the text ends.
size_t beginning_of(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return std::min(at, text.size());
}

/// Looks for matches in one text, which is UTF-8.
class Matcher {
 public:
  Matcher(const pcre2_code* code, std::string_view text, MatchBudget& budget)
      : code_(code),
        text_(text),
        budget_(budget),
        found_(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free),
        limits_(pcre2_match_context_create(nullptr), pcre2_match_context_free) {
    if (limits_ != nullptr) pcre2_set_heap_limit(limits_.get(), kHeapKibMax);
  }
  bool has_memory() const { return found_ != nullptr && limits_ != nullptr; }

  /// PCRE2's result for the first match from `start` on. PCRE2's limit counts anew at each place
  /// that a match may begin at, so these are tried one by one.
  int find(size_t start) {
    int result = PCRE2_ERROR_NOMATCH;
    for (; start < text_.size() && result == PCRE2_ERROR_NOMATCH; start = behind(text_, start)) {
      result = find_at(start);
    }
    return result;
  }
  /// Begin and end of what has been found.
  const PCRE2_SIZE* ends() const { return pcre2_get_ovector_pointer(found_.get()); }

 private:
  /// How many steps it took PCRE2 does not say, nor how far it read: a loop that is never left
  /// reads to the end of the text in one step. A match that takes more steps than all may, or gets
  /// to the end of what it sees, is tried again with more, and the text pays for each try.
  int find_at(size_t start) {
    uint64_t steps = kMatchSteps, window = kWindowBytes;
    const uint64_t rest = text_.size() - start;
    while (true) {
      const int result = find_within(start, window, static_cast<uint32_t>(steps));
      uint64_t price = 0;
      if (result == PCRE2_ERROR_MATCHLIMIT) {
        steps = std::min({steps * kTryGrowth, budget_.steps, uint64_t{UINT32_MAX}});
        price = steps;
      } else if (result == PCRE2_ERROR_PARTIAL) {
        window *= kTryGrowth;
        price = std::min(window, rest) / kStepBytes * (1 + steps / kMatchSteps);
      } else {
        return result;
      }
      if (budget_.steps == 0 || price > budget_.steps) {
        budget_.steps = 0;
        return PCRE2_ERROR_MATCHLIMIT;
      }
      budget_.steps -= price;
    }
  }
  /// PCRE2_ERROR_PARTIAL if the result depends on what is behind the `window` bytes from `start`
  /// on.
  int find_within(size_t start, uint64_t window, uint32_t steps) {
    const bool is_rest = window >= text_.size() - start;
    const size_t end = is_rest ? text_.size() : beginning_of(text_, start + window);
    pcre2_set_match_limit(limits_.get(), steps);
    // What is before `start` is seen, too: an expression may look back.
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, start,
                       PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | (is_rest ? 0 : PCRE2_PARTIAL_HARD),
                       found_.get(), limits_.get());
  }

  const pcre2_code* code_;
  std::string_view text_;
  MatchBudget& budget_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits_;
};

}  // namespace

MatchBudget::MatchBudget(size_t text_bytes) : steps(kByteSteps * text_bytes) {}

struct Pattern::Compiled {
  std::string place;
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Pattern::~Pattern() = default;

absl::StatusOr<std::unique_ptr<Pattern>> Pattern::compile(const std::string& expression,
                                                          const std::string& place) {
  if (expression.size() > kExpressionBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": a regular expression of ", expression.size(), " bytes"));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->place = place;
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (compiled->code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": regular expression: ", message_of(error), ", at byte ", offset));
  }
  uint32_t groups = 0;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_CAPTURECOUNT, &groups);
  if (groups > kGroupsMax) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": a regular expression of ", groups,
                                                   " groups, at most ", kGroupsMax,
                                                   "; write (?:...) for (...)"));
  }
  return std::make_unique<Pattern>(std::move(compiled));
}

absl::Status Pattern::cut(std::string_view text, MatchBudget& budget,
                          const std::function<absl::Status(std::string_view)>& take) const {
  if (!plans::is_utf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat(compiled_->place, ": the text is no UTF-8"));
  }
  Matcher matcher(compiled_->code, text, budget);
  if (!matcher.has_memory()) return absl::ResourceExhaustedError("no memory for a match");
  size_t done = 0;   // What has been taken.
  size_t start = 0;  // Where the next match is looked for.
  while (done < text.size()) {
    const int found = matcher.find(start);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return cannot_cut(found, text.size(), compiled_->place);
    const PCRE2_SIZE* ends = matcher.ends();
    if (ends[1] <= ends[0]) {  // An empty match cuts nothing; the next one begins further on.
      start = behind(text, ends[0]);
      continue;
    }
    if (ends[0] > done) SKEIN_RETURN_IF_ERROR(take(text.substr(done, ends[0] - done)));
    SKEIN_RETURN_IF_ERROR(take(text.substr(ends[0], ends[1] - ends[0])));
    done = start = ends[1];
  }
  return done < text.size() ? take(text.substr(done)) : absl::OkStatus();
}

}  // namespace skein::gpu
