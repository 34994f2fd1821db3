#include "cli/verbs/generate.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/verbs/generated_text.hpp"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr int64_t kByteVocabulary = 256;

absl::Status check(const GenerateOptions& options) {
  const bool fits = options.tokens >= 1 && options.temperature >= 0 && options.top_k >= 0 &&
                    options.threads >= 1 && !options.prompt.empty();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tokens and --threads must be at least 1, --temperature and --top-k at "
      "least 0, and the "
      "prompt not empty");
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

/// One draw from softmax(logits / temperature) among the `top_k` largest.
int32_t draw(std::span<const float> logits, const GenerateOptions& options, plans::Rng& rng) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = options.top_k == 0 || options.temperature == 0
                          ? logits.size()
                          : std::min(logits.size(), static_cast<size_t>(options.top_k));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (options.temperature == 0) return order.front();
  std::vector<double> weights(kept);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((logits[order[i]] - logits[order[0]]) / options.temperature);
    sum += weights[i];
  }
  double left = rng.uniform() * sum;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

/// The whole model on one device.
class Sampler {
 public:
  static absl::StatusOr<std::unique_ptr<Sampler>> create(const gpu::CheckpointReader& reader,
                                                         int64_t window, int64_t threads) {
    auto sampler = std::make_unique<Sampler>();
    sampler->device_ = gpu::make_host_device(static_cast<int32_t>(threads));
    gpu::StageModelOptions options;
    options.model = reader.model();
    options.layers = {0, plans::layer_count(options.model)};
    options.rows = 1;
    options.seq_len = window;
    options.recompute = true;  // Nothing is kept for a backward.
    SKEIN_ASSIGN_OR_RETURN(sampler->model_, gpu::StageModel::create(options, *sampler->device_));
    const auto& parameters = sampler->model_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(plans::element_count(parameters[i])));
      SKEIN_RETURN_IF_ERROR(reader.read(parameters[i].name, values));
      SKEIN_RETURN_IF_ERROR(sampler->model_->write_state(i, gpu::StateKind::kWeight, values));
    }
    return sampler;
  }

  /// Logits behind the last of `tokens`, of which the window's last ones count.
  absl::Status run(std::span<const int32_t> tokens, int64_t window, std::span<float> logits) {
    const auto used = std::min(static_cast<int64_t>(tokens.size()), window);
    // Behind the last token the window holds what causal attention cannot see.
    std::vector<int32_t> padded(static_cast<size_t>(window), 0);
    std::copy(tokens.end() - used, tokens.end(), padded.begin());
    const std::vector<int32_t> targets(padded.size(), -1);
    gpu::Work work;
    work.run = [&](gpu::Ops& ops) {
      gpu::StageModel::Input input;
      input.tokens = padded;
      input.targets = targets;
      return model_->logits(ops, input, used - 1, logits);
    };
    return device_->run(std::move(work));
  }

 private:
  std::unique_ptr<gpu::Device> device_;  // First made, last destroyed.
  std::unique_ptr<gpu::StageModel> model_;
};

}  // namespace

absl::Status generate(const GenerateOptions& options, std::ostream& out) {
  SKEIN_RETURN_IF_ERROR(check(options));
  SKEIN_ASSIGN_OR_RETURN(auto reader, gpu::CheckpointReader::open(options.checkpoint));
  const int64_t vocab_size = reader->model().vocab_size;
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode(options.prompt, vocab_size));
  // Positions beyond the length of the training samples have learned nothing.
  const int64_t trained =
      std::clamp<int64_t>(reader->trainer_state().seq_len, 1, reader->model().positions);
  const int64_t window = std::min(trained, static_cast<int64_t>(tokens.size()) + options.tokens);
  SKEIN_ASSIGN_OR_RETURN(auto sampler, Sampler::create(*reader, window, options.threads));
  const bool is_bytes = vocab_size <= kByteVocabulary;
  GeneratedText text;
  if (is_bytes) out << options.prompt << std::flush;
  plans::Rng rng(options.seed);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (int64_t n = 0; n < options.tokens && out; ++n) {
    SKEIN_RETURN_IF_ERROR(sampler->run(tokens, window, logits));
    tokens.push_back(draw(logits, options, rng));
    if (is_bytes) {
      out << text.add(static_cast<uint8_t>(tokens.back()));
    } else {
      out << tokens.back() << ' ';
    }
    out.flush();
  }
  out << text.end() << std::endl;
  return absl::OkStatus();
}

}  // namespace skein::cli
