#include "cli/verbs/generate.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/printing/stderr_lines.hpp"
#include "cli/verbs/model_parts.hpp"
#include "cli/verbs/model_text.hpp"
#include "gpu/checkpoint/generation_config.hpp"
#include "gpu/checkpoint/model_source.hpp"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "gpu/model/decoder_pipeline.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

absl::Status check(const GenerateOptions& options) {
  if (options.tokens < 1 || options.tokens > kTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens ", options.tokens, ": must be in [1, ", kTokensMax, "]"));
  }
  if (options.devices.threads < 1)
    return absl::InvalidArgumentError("--threads must be at least 1");
  if (options.workers.listen.empty() != (options.workers.count == 0)) {
    return absl::InvalidArgumentError(
        "--listen and --workers go together: where workers join, and how many are waited for");
  }
  if (options.prompt.empty()) return absl::InvalidArgumentError("--prompt must not be empty");
  return check(options.sampling);
}

/// The most positions that are computed at once.
int64_t added_max(int64_t prompt_tokens, int64_t window, int64_t tokens) {
  // When the context moves on, half of it is computed anew.
  const bool moves = prompt_tokens + tokens > window;
  const int64_t added =
      std::max(std::min(prompt_tokens, window), moves ? window - window / 2 + 1 : 0);
  return std::min(added, window);
}

/// The model on its devices or workers, and the sequence that it has seen.
class Sampler {
 public:
  static absl::StatusOr<std::unique_ptr<Sampler>> create(const gpu::ModelSource& source,
                                                         const DecodingNeed& need,
                                                         const GenerateOptions& options) {
    auto sampler = std::make_unique<Sampler>();
    sampler->window_ = need.positions;
    if (!options.workers.listen.empty()) {
      SKEIN_ASSIGN_OR_RETURN(sampler->model_,
                             gather_text_workers(source, need, options.workers, options.devices));
      return sampler;
    }
    SKEIN_RETURN_IF_ERROR(sampler->load(source, need, options.devices));
    return sampler;
  }

  /// Logits behind the last of `tokens`, which begin with those of the call before.
  absl::Status run(std::span<const int32_t> tokens, std::span<float> logits) {
    const int64_t begin = gpu::context_begin(static_cast<int64_t>(tokens.size()), window_);
    if (begin != begin_) model_->clear();
    begin_ = begin;
    return model_->extend(tokens.subspan(static_cast<size_t>(begin + model_->length())), logits);
  }

 private:
  absl::Status load(const gpu::ModelSource& source, const DecodingNeed& need,
                    const DeviceNames& names) {
    SKEIN_ASSIGN_OR_RETURN(devices_, open_devices(names));
    SKEIN_ASSIGN_OR_RETURN(const auto parts, cut_model(need, devices_));
    if (devices_.size() > 1 || !parts.front().device->info().is_host_memory) {
      actors::print_error_line(absl::StrCat("skein: ", parts_text(parts)));
    }
    const auto read = [&source](const std::string& name, std::span<float> out) {
      return source.read(name, out);
    };
    SKEIN_ASSIGN_OR_RETURN(model_,
                           gpu::DecoderPipeline::create(need.model, need.positions, parts, read));
    return absl::OkStatus();
  }

  std::vector<std::unique_ptr<gpu::Device>> devices_;  // First made, last destroyed.
  std::unique_ptr<gpu::SequenceModel> model_;
  int64_t window_ = 0;
  int64_t begin_ = 0;  // Where the context begins in all tokens.
};

}  // namespace

absl::Status generate(const GenerateOptions& options, std::ostream& out) {
  SKEIN_RETURN_IF_ERROR(check(options));
  ModelText text;
  std::set<int32_t> ends;
  const auto read_beside = [&](const gpu::ModelSource& source) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(
        text, ModelText::open(source.folder(), source.model().vocab_size, options.is_numbers));
    if (!options.stops) return absl::OkStatus();
    auto found = gpu::read_end_tokens(source.folder());
    if (!found.ok()) {
      return absl::Status(found.status().code(),
                          absl::StrCat(std::string(found.status().message()),
                                       "; --ignore-eos draws text without an end token"));
    }
    ends = *std::move(found);
    return absl::OkStatus();
  };
  SKEIN_ASSIGN_OR_RETURN(const gpu::ModelSource source,
                         gpu::ModelSource::open(options.checkpoint, read_beside));
  const int64_t vocab_size = source.model().vocab_size;
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, text.encode(options.prompt));
  const auto prompt_tokens = static_cast<int64_t>(tokens.size());
  const int64_t window = std::min(source.positions(), prompt_tokens + options.tokens);
  if (prompt_tokens > window) {
    const int64_t seen = prompt_tokens - gpu::context_begin(prompt_tokens, window);
    actors::print_error_line(absl::StrCat("skein: the prompt has ", prompt_tokens,
                                          " tokens, and the model has been trained for ", window,
                                          " positions: it sees the last ", seen, " of them"));
  }
  const DecodingNeed need = {source.model(), window,
                             added_max(prompt_tokens, window, options.tokens)};
  SKEIN_ASSIGN_OR_RETURN(auto sampler, Sampler::create(source, need, options));
  if (!text.is_numbers()) out << options.prompt << std::flush;
  plans::Rng rng(options.seed);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (int64_t n = 0; n < options.tokens && out; ++n) {
    SKEIN_RETURN_IF_ERROR(sampler->run(tokens, logits));
    SKEIN_ASSIGN_OR_RETURN(const int32_t token, draw_token(logits, options.sampling, rng));
    if (ends.contains(token)) break;
    tokens.push_back(token);
    out << text.add(token) << std::flush;
  }
  out << text.end() << std::endl;
  return absl::OkStatus();
}

}  // namespace skein::cli
