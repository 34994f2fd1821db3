#include "gpu/data/token_data.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/data/token_source.hpp"
#include "gpu/data/token_windows.hpp"
#include "plans/base/fnv.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/sample_mixture.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::gpu {
namespace {

/// A source to train on, and the order of its windows.
struct Training {
  TokenWindows windows;
  plans::SampleOrder order;
};

class WindowedData final : public TokenData {
 public:
  WindowedData(std::vector<Training> training, TokenWindows validation,
               std::optional<plans::SampleMixture> mixture)
      : training_(std::move(training)),
        validation_(std::move(validation)),
        mixture_(std::move(mixture)) {}

  absl::Status make_digest() {
    digest_ = plans::kFnvOffset;
    for (const Training& each : training_) {
      SKEIN_RETURN_IF_ERROR(each.windows.add_to_digest(digest_));
    }
    return validation_.add_to_digest(digest_);
  }

  uint64_t bytes() const override {
    uint64_t sum = validation_.bytes();
    for (const Training& each : training_) sum += each.windows.bytes();
    return sum;
  }
  uint64_t digest() const override { return digest_; }
  uint64_t digest_of_tokens() const override {
    uint64_t digest = plans::kFnvOffset;
    for (const Training& each : training_) each.windows.add_tokens_to_digest(digest);
    validation_.add_tokens_to_digest(digest);
    return digest;
  }
  bool is_unchanged() const override {
    return validation_.is_unchanged() &&
           std::all_of(training_.begin(), training_.end(),
                       [](const Training& each) { return each.windows.is_unchanged(); });
  }
  int64_t training_tokens() const override {
    int64_t sum = 0;
    for (const Training& each : training_) sum += each.windows.tokens();
    return sum;
  }
  int64_t validation_tokens() const override { return validation_.tokens(); }
  int64_t training_windows() const override {
    int64_t sum = 0;
    for (const Training& each : training_) sum += each.windows.count();
    return sum;
  }
  int64_t validation_windows() const override { return validation_.count(); }

  absl::Status training_sample(uint64_t sample, std::span<int32_t> tokens,
                               std::span<int32_t> targets) const override {
    plans::SampleMixture::Place place{0, sample};
    if (mixture_) place = mixture_->place(sample);
    const Training& source = training_[place.source];
    const auto window = static_cast<int64_t>(source.order.window(place.sample));
    return source.windows.read(window, tokens, targets);
  }
  absl::Status validation_sample(uint64_t window, std::span<int32_t> tokens,
                                 std::span<int32_t> targets) const override {
    const auto count = static_cast<uint64_t>(validation_.count());
    return validation_.read(static_cast<int64_t>(window % count), tokens, targets);
  }

 private:
  std::vector<Training> training_;
  TokenWindows validation_;
  std::optional<plans::SampleMixture> mixture_;  // Only if there are several sources.
  uint64_t digest_ = 0;
};

std::vector<TokenPart> whole(std::vector<TokenSource::Shard>& shards) {
  std::vector<TokenPart> parts;
  for (TokenSource::Shard& each : shards) {
    const int64_t count = each.array.count;
    parts.push_back({each.path, std::move(each.array), 0, count, each.vocab_size});
  }
  return parts;
}

/// Moves the last `count` tokens of `parts` to the end of `tail`.
void hold_out(std::vector<TokenPart>& parts, int64_t count, std::vector<TokenPart>& tail) {
  std::vector<TokenPart> taken;
  while (count > 0 && !parts.empty()) {
    TokenPart& last = parts.back();
    const int64_t part = std::min(count, last.count);
    taken.push_back({last.path, last.array, last.begin + last.count - part, part, last.vocab_size});
    last.count -= part;
    count -= part;
    if (last.count == 0) parts.pop_back();
  }
  tail.insert(tail.end(), std::make_move_iterator(taken.rbegin()),
              std::make_move_iterator(taken.rend()));
}

/// The parts of files that are trained on, by source, and those that are held out.
struct Parts {
  std::vector<std::vector<TokenPart>> training;
  std::vector<TokenPart> validation;
};

absl::StatusOr<Parts> open_parts(const TokenData::Options& options) {
  const plans::DataSpec& data = options.data;
  std::vector<std::string> paths = data.mixture;
  if (paths.empty()) paths = {data.path};
  if (data.dataset == "kjv") {
    SKEIN_ASSIGN_OR_RETURN(paths.front(), kjv_path());
  }
  const bool is_text = data.dataset != "tokens";
  Parts parts;
  for (const std::string& path : paths) {
    SKEIN_ASSIGN_OR_RETURN(TokenSource source, open_source(path, is_text, options.vocab_size));
    parts.training.push_back(whole(source.training));
    std::vector<TokenPart> listed = whole(source.validation);
    if (!data.validation_path.empty()) continue;
    if (listed.empty()) {
      int64_t count = 0;
      for (const TokenPart& part : parts.training.back()) count += part.count;
      const auto tail = static_cast<int64_t>(static_cast<double>(count) * data.validation_fraction);
      hold_out(parts.training.back(), tail, parts.validation);
    } else {
      std::move(listed.begin(), listed.end(), std::back_inserter(parts.validation));
    }
  }
  if (data.validation_path.empty()) return parts;
  SKEIN_ASSIGN_OR_RETURN(TokenSource held_out,
                         open_source(data.validation_path, is_text, options.vocab_size));
  // A manifest has what is held out apart, if it has anything.
  parts.validation = whole(held_out.validation.empty() ? held_out.training : held_out.validation);
  return parts;
}

/// Whether both have a token of one file, whatever its names are.
bool overlap(const TokenPart& a, const TokenPart& b) {
  const MappedFile::Version& one = a.array.file->version();
  const MappedFile::Version& other = b.array.file->version();
  return one.device == other.device && one.inode == other.inode && a.begin < b.begin + b.count &&
         b.begin < a.begin + a.count;
}

/// What one source trains on must not be what another one holds out.
absl::Status check_apart(const Parts& parts) {
  for (const std::vector<TokenPart>& source : parts.training) {
    for (const TokenPart& trained : source) {
      for (const TokenPart& held_out : parts.validation) {
        if (!overlap(trained, held_out)) continue;
        return absl::InvalidArgumentError(absl::StrCat("tokens of ", held_out.path,
                                                       " are held out for validation, and are "
                                                       "trained on as those of ",
                                                       trained.path, "; take one of them out"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status check_count(const TokenWindows& windows, const std::string& name, const char* what,
                         int64_t seq_len) {
  if (windows.count() >= 1) return absl::OkStatus();
  const bool are_several = windows.parts() > 1;  // A window is in one file.
  const std::string why =
      are_several ? absl::StrCat(" in ", windows.parts(), " files, none of which has enough")
                  : ", too few";
  return absl::DataLossError(
      absl::StrCat("data of ", name, " leaves ", windows.tokens(), " tokens for ", what, why,
                   " for one window of training.seq_len = ", seq_len, " and its target; use ",
                   are_several ? "larger files" : "more data", " or a shorter seq_len"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenData>> TokenData::open(const Options& options) {
  const plans::DataSpec& data = options.data;
  SKEIN_ASSIGN_OR_RETURN(Parts parts, open_parts(options));
  // Whoever names the held-out data may name what is trained on.
  if (data.validation_path.empty()) SKEIN_RETURN_IF_ERROR(check_apart(parts));
  if (data.weights.empty()) {  // Each window once a pass, whichever source it is from.
    for (size_t n = 1; n < parts.training.size(); ++n) {
      std::move(parts.training[n].begin(), parts.training[n].end(),
                std::back_inserter(parts.training.front()));
    }
    parts.training.resize(1);
  }
  std::string all = data.dataset == "kjv" ? "kjv" : data.path;
  if (!data.mixture.empty()) all = "data.mixture";
  std::vector<Training> training;
  for (std::vector<TokenPart>& each : parts.training) {
    const size_t n = training.size();
    TokenWindows windows(std::move(each), options.seq_len, options.vocab_size);
    const bool is_named = !data.weights.empty() && n < data.mixture.size();
    const std::string name = is_named ? data.mixture[n] : all;
    SKEIN_RETURN_IF_ERROR(check_count(windows, name, "training", options.seq_len));
    const uint64_t seed = n == 0 ? options.seed : plans::random_bits(options.seed, n, 0);
    const auto count = static_cast<uint64_t>(windows.count());
    training.push_back({std::move(windows), {seed, count}});
  }
  TokenWindows validation(std::move(parts.validation), options.seq_len, options.vocab_size);
  const std::string name = data.validation_path.empty() ? all : data.validation_path;
  SKEIN_RETURN_IF_ERROR(check_count(validation, name, "validation", options.seq_len));
  std::optional<plans::SampleMixture> mixture;
  if (training.size() > 1) {
    SKEIN_ASSIGN_OR_RETURN(mixture, plans::SampleMixture::make(data.weights, options.seed));
  }
  auto made = std::make_unique<WindowedData>(std::move(training), std::move(validation),
                                             std::move(mixture));
  SKEIN_RETURN_IF_ERROR(made->make_digest());
  return std::unique_ptr<TokenData>(std::move(made));
}

}  // namespace skein::gpu
