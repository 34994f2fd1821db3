#include "gpu/data/token_data.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/data/token_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::gpu {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

/// Tokens [begin, begin + count) of an array.
struct Part {
  TokenArray array;
  int64_t begin = 0;
  int64_t count = 0;

  int64_t windows(int64_t seq_len) const {
    // A window's last target is the first token behind it.
    return count <= seq_len ? 0 : (count - 1) / seq_len;
  }
  void window(int64_t index, int64_t seq_len, std::span<int32_t> tokens,
              std::span<int32_t> targets) const {
    const int64_t first = begin + index * seq_len;
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = array.at(first + static_cast<int64_t>(i));
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i] = array.at(first + 1 + static_cast<int64_t>(i));
    }
  }
};

class WindowedData final : public TokenData {
 public:
  WindowedData(Part training, Part validation, int64_t seq_len, uint64_t seed)
      : training_(std::move(training)),
        validation_(std::move(validation)),
        seq_len_(seq_len),
        order_{seed, static_cast<uint64_t>(training_.windows(seq_len))} {}

  /// FNV-1a over the values of all tokens, and the check of their range, in one look at each.
  absl::Status scan(int64_t vocab_size) {
    digest_ = kFnvOffset;
    for (const Part* part : {&training_, &validation_}) {
      for (int64_t i = 0; i < part->count; ++i) {
        const int32_t token = part->array.at(part->begin + i);
        if (token < 0 || token >= vocab_size) {
          return absl::InvalidArgumentError(absl::StrCat(
              "token ", part->begin + i, " of the data is ", token,
              ", beyond model.vocab_size = ", vocab_size, "; raise it or use other data"));
        }
        digest_ = (digest_ ^ static_cast<uint64_t>(token)) * kFnvPrime;
      }
    }
    return absl::OkStatus();
  }

  uint64_t bytes() const override {
    return static_cast<uint64_t>(training_.count * training_.array.width +
                                 validation_.count * validation_.array.width);
  }
  uint64_t digest() const override { return digest_; }
  bool is_unchanged() const override {
    return training_.array.file->is_unchanged() && validation_.array.file->is_unchanged();
  }
  absl::Status check_length() const override {
    SKEIN_RETURN_IF_ERROR(training_.array.file->check_length());
    const bool is_one_file = validation_.array.file == training_.array.file;
    return is_one_file ? absl::OkStatus() : validation_.array.file->check_length();
  }
  int64_t training_tokens() const override { return training_.count; }
  int64_t validation_tokens() const override { return validation_.count; }
  int64_t training_windows() const override { return training_.windows(seq_len_); }
  int64_t validation_windows() const override { return validation_.windows(seq_len_); }

  void training_sample(uint64_t sample, std::span<int32_t> tokens,
                       std::span<int32_t> targets) const override {
    training_.window(static_cast<int64_t>(order_.window(sample)), seq_len_, tokens, targets);
  }
  void validation_sample(uint64_t window, std::span<int32_t> tokens,
                         std::span<int32_t> targets) const override {
    const auto count = static_cast<uint64_t>(validation_windows());
    validation_.window(static_cast<int64_t>(window % count), seq_len_, tokens, targets);
  }

 private:
  Part training_, validation_;
  int64_t seq_len_;
  plans::SampleOrder order_;
  uint64_t digest_ = 0;
};

absl::StatusOr<TokenArray> open_array(const plans::DataSpec& data, const std::string& path) {
  if (data.dataset == "tokens") return open_tokens(path);
  if (data.dataset == "text") return open_text(path);
  SKEIN_ASSIGN_OR_RETURN(const std::string kjv, kjv_path());
  return open_text(kjv);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenData>> TokenData::open(const Options& options) {
  const plans::DataSpec& data = options.data;
  SKEIN_ASSIGN_OR_RETURN(TokenArray array, open_array(data, data.path));
  Part training{array, 0, array.count};
  Part validation;
  if (!data.validation_path.empty()) {
    SKEIN_ASSIGN_OR_RETURN(TokenArray held_out, open_array(data, data.validation_path));
    validation = {held_out, 0, held_out.count};
  } else {
    const auto tail =
        static_cast<int64_t>(static_cast<double>(array.count) * data.validation_fraction);
    validation = {array, array.count - tail, tail};
    training.count -= tail;
  }
  for (const auto& [part, what] : {std::pair{&training, "training"}, {&validation, "validation"}}) {
    if (part->windows(options.seq_len) >= 1) continue;
    return absl::DataLossError(absl::StrCat(
        "data of ", data.dataset == "kjv" ? "kjv" : data.path, " leaves ", part->count,
        " tokens for ", what, ", too few for one window of training.seq_len = ", options.seq_len,
        " and its target; use more data or a shorter seq_len"));
  }
  auto windows = std::make_unique<WindowedData>(std::move(training), std::move(validation),
                                                options.seq_len, options.seed);
  SKEIN_RETURN_IF_ERROR(windows->scan(options.vocab_size));
  return std::unique_ptr<TokenData>(std::move(windows));
}

}  // namespace skein::gpu
