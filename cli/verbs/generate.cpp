#include "cli/verbs/generate.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/verbs/generated_text.hpp"
#include "cli/verbs/model_source.hpp"
#include "gpu/checkpoint/generation_config.hpp"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr int64_t kByteVocabulary = 256;

absl::Status check(const GenerateOptions& options) {
  if (options.tokens < 1) return absl::InvalidArgumentError("--tokens must be at least 1");
  if (options.threads < 1) return absl::InvalidArgumentError("--threads must be at least 1");
  if (options.prompt.empty()) return absl::InvalidArgumentError("--prompt must not be empty");
  return check(options.sampling);
}

absl::StatusOr<std::vector<int32_t>> encode(const std::string& prompt, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  if (vocab_size <= kByteVocabulary) {
    for (char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    for (absl::string_view word : absl::StrSplit(prompt, ' ', absl::SkipWhitespace())) {
      int32_t token = 0;
      if (!absl::SimpleAtoi(word, &token)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the model has ", vocab_size,
                         " symbols and no tokenizer: give the prompt as token "
                         "numbers, got \"",
                         word, "\""));
      }
      tokens.push_back(token);
    }
    if (tokens.empty()) tokens.push_back(static_cast<int32_t>(vocab_size - 1));  // End of text.
  }
  for (int32_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt symbol ", token, " is beyond the model's ", vocab_size));
    }
  }
  return tokens;
}

/// The model on the processor, and the sequence that it has seen.
class Sampler {
 public:
  static absl::StatusOr<std::unique_ptr<Sampler>> create(const ModelSource& source, int64_t window,
                                                         const GenerateOptions& options) {
    auto sampler = std::make_unique<Sampler>();
    sampler->device_ = gpu::make_host_device(static_cast<int32_t>(options.threads));
    sampler->window_ = window;
    sampler->caches_ = options.caches;
    const auto read = [&source](const std::string& name, std::span<float> out) {
      return source.read(name, out);
    };
    SKEIN_ASSIGN_OR_RETURN(sampler->decoder_,
                           gpu::Decoder::create(source.model(), window, read, *sampler->device_));
    return sampler;
  }

  /// Logits behind the last of `tokens`, which begin with those of the call before.
  absl::Status run(std::span<const int32_t> tokens, std::span<float> logits) {
    const int64_t begin = gpu::context_begin(static_cast<int64_t>(tokens.size()), window_);
    if (begin != begin_ || !caches_) decoder_->clear();
    begin_ = begin;
    const auto added = tokens.subspan(static_cast<size_t>(begin + decoder_->length()));
    gpu::Work work;
    work.run = [&](gpu::Ops& ops) { return decoder_->extend(ops, added, logits); };
    return device_->run(std::move(work));
  }

 private:
  std::unique_ptr<gpu::Device> device_;  // First made, last destroyed.
  std::unique_ptr<gpu::Decoder> decoder_;
  int64_t window_ = 0;
  int64_t begin_ = 0;  // Where the context begins in all tokens.
  bool caches_ = true;
};

}  // namespace

absl::Status generate(const GenerateOptions& options, std::ostream& out) {
  SKEIN_RETURN_IF_ERROR(check(options));
  SKEIN_ASSIGN_OR_RETURN(const ModelSource source, ModelSource::open(options.checkpoint));
  const int64_t vocab_size = source.model().vocab_size;
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode(options.prompt, vocab_size));
  std::set<int32_t> ends;
  if (options.stops) {
    SKEIN_ASSIGN_OR_RETURN(ends, gpu::read_end_tokens(source.folder()));
  }
  const int64_t window =
      std::min(source.positions(), static_cast<int64_t>(tokens.size()) + options.tokens);
  SKEIN_ASSIGN_OR_RETURN(auto sampler, Sampler::create(source, window, options));
  const bool is_bytes = vocab_size <= kByteVocabulary;
  GeneratedText text;
  if (is_bytes) out << options.prompt << std::flush;
  plans::Rng rng(options.seed);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (int64_t n = 0; n < options.tokens && out; ++n) {
    SKEIN_RETURN_IF_ERROR(sampler->run(tokens, logits));
    SKEIN_ASSIGN_OR_RETURN(const int32_t token, draw_token(logits, options.sampling, rng));
    if (ends.contains(token)) break;
    tokens.push_back(token);
    if (is_bytes) {
      out << text.add(static_cast<uint8_t>(token));
    } else {
      out << token << ' ';
    }
    out.flush();
  }
  out << text.end() << std::endl;
  return absl::OkStatus();
}

}  // namespace skein::cli
