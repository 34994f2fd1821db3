#include "cli/verbs/eval_verb.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/json_text.hpp"
#include "cli/report/number_text.hpp"
#include "cli/verbs/eval_data.hpp"
#include "cli/verbs/model_memory.hpp"
#include "cli/verbs/model_text.hpp"
#include "gpu/checkpoint/byte_tokens.hpp"
#include "gpu/checkpoint/model_source.hpp"
#include "gpu/checkpoint/text_files.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/numbers.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/byte_vocabulary.hpp"

namespace skein::cli {
namespace {

/// A published model has far more positions than the loss of a window needs memory for.
constexpr int64_t kUntrainedSeqLenMax = 1024;

absl::Status check(const EvalOptions& options) {
  if (options.seq_len < 0) return absl::InvalidArgumentError("--seq-len must be 0 or more");
  if (options.batch < 1) return absl::InvalidArgumentError("--batch must be at least 1");
  if (options.windows < 0) return absl::InvalidArgumentError("--windows must be 0 or more");
  if (options.threads < 1) return absl::InvalidArgumentError("--threads must be at least 1");
  return absl::OkStatus();
}

/// Tokens of a window.
absl::StatusOr<int64_t> find_seq_len(const EvalOptions& options, const gpu::ModelSource& source) {
  const int64_t positions = source.model().positions;
  const int64_t untrained = std::min(source.positions(), kUntrainedSeqLenMax);
  const int64_t seq_len =
      options.seq_len > 0 ? options.seq_len : source.trained_seq_len().value_or(untrained);
  if (seq_len <= positions) return seq_len;
  return absl::InvalidArgumentError(
      absl::StrCat("--seq-len ", seq_len, ": the model is made for ", positions, " positions"));
}

/// Tokens of the data that the model can know.
absl::StatusOr<std::unique_ptr<gpu::TokenData>> open_data(const plans::DataSpec& data,
                                                          int64_t seq_len, int64_t vocab_size) {
  if (data.dataset != "tokens" && vocab_size > plans::kByteVocabularyMax) {
    return absl::InvalidArgumentError(absl::StrCat("bytes (data.dataset = \"", data.dataset,
                                                   "\") are no tokens of a model with ", vocab_size,
                                                   " of them; give token files (\"tokens\")"));
  }
  return gpu::TokenData::open({data, seq_len, vocab_size, /*seed=*/0});
}

/// What the tokens of the data stand for. A tokenizer that is not followed leaves that unknown.
absl::StatusOr<ModelText> text_of(const plans::DataSpec& data, const gpu::ModelSource& source) {
  if (data.dataset != "tokens") return ModelText::bytes();
  constexpr int64_t kBytes = 256;
  const int64_t vocab_size = source.model().vocab_size;
  auto text = ModelText::open(source.folder(), std::max(vocab_size, kBytes + 1), false);
  return absl::IsInvalidArgument(text.status()) ? ModelText::open("", vocab_size, true) : text;
}

gpu::StageModelOptions whole_model(const gpu::ModelSource& source, int64_t seq_len, int64_t batch) {
  gpu::StageModelOptions stage;
  stage.model = source.model();
  stage.layers = {0, plans::layer_count(stage.model)};
  stage.rows = batch;
  stage.seq_len = seq_len;
  stage.recompute = true;  // Nothing is kept for a backward.
  return stage;
}

/// Before anything is allocated.
absl::Status check_memory(const gpu::StageModelOptions& stage, const gpu::DeviceInfo& device) {
  int64_t largest = 0;  // Parameters are read one by one.
  for (const auto& spec : plans::range_parameters(stage.model, stage.layers)) {
    largest = std::max(largest, plans::element_count(spec));
  }
  const gpu::MemoryEstimate estimate = gpu::estimate_memory(stage, device);
  return check_available_memory(
      {absl::StrCat("judging ", stage.rows, " windows of ", stage.seq_len, " tokens at once"),
       estimate.total_bytes() + gpu::float_bytes(largest), estimate.state_bytes,
       "a smaller --batch or --seq-len"});
}

/// The whole model on one device, for so many windows at once.
class Evaluator {
 public:
  static absl::StatusOr<std::unique_ptr<Evaluator>> create(const gpu::ModelSource& source,
                                                           int64_t seq_len,
                                                           const EvalOptions& options) {
    auto evaluator = std::make_unique<Evaluator>();
    evaluator->device_ = gpu::make_host_device(static_cast<int32_t>(options.threads));
    const gpu::StageModelOptions stage = whole_model(source, seq_len, options.batch);
    SKEIN_RETURN_IF_ERROR(check_memory(stage, evaluator->device_->info()));
    SKEIN_ASSIGN_OR_RETURN(evaluator->model_, gpu::StageModel::create(stage, *evaluator->device_));
    const auto& parameters = evaluator->model_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(plans::element_count(parameters[i])));
      SKEIN_RETURN_IF_ERROR(source.read(parameters[i].name, values));
      SKEIN_RETURN_IF_ERROR(evaluator->model_->write_state(i, gpu::StateKind::kWeight, values));
    }
    return evaluator;
  }

  /// Adds the losses of `targets` [batch, T]; those of -1 do not count.
  absl::Status add(std::span<const int32_t> tokens, std::span<const int32_t> targets) {
    gpu::Work work;
    work.run = [&](gpu::Ops& ops) {
      gpu::StageModel::Input input;
      input.tokens = tokens;
      input.targets = targets;
      return model_->evaluate(ops, input, {});
    };
    return device_->run(std::move(work));
  }
  double loss_sum() const { return model_->loss_sum(); }
  int64_t loss_tokens() const { return model_->loss_tokens(); }

 private:
  std::unique_ptr<gpu::Device> device_;  // First made, last destroyed.
  std::unique_ptr<gpu::StageModel> model_;
};

struct Evaluation {
  std::string checkpoint, data;
  int64_t windows = 0, seq_len = 0, tokens = 0;
  double loss = 0;               // Nats of a token.
  std::optional<int64_t> bytes;  // The text of the tokens has so many; none: it is not known.
  double seconds = 0;
  double perplexity() const { return std::exp(loss); }
  double bits_per_byte() const {
    return loss * static_cast<double>(tokens) / std::log(2.0) / static_cast<double>(*bytes);
  }
};

void print(const Evaluation& result, bool as_json, std::ostream& out) {
  if (as_json) {
    Json json = {{"checkpoint", result.checkpoint},  {"data", result.data},
                 {"windows", result.windows},        {"seq_len", result.seq_len},
                 {"tokens", result.tokens},          {"loss", result.loss},
                 {"perplexity", result.perplexity()}};
    json["bytes"] = result.bytes ? Json(*result.bytes) : Json();
    json["bits_per_byte"] = result.bytes ? Json(result.bits_per_byte()) : Json();
    json["seconds"] = result.seconds;
    out << json_text(json, 2) << std::endl;
    return;
  }
  out << result.checkpoint << " on " << result.data << ": " << with_commas(result.windows)
      << " windows of " << result.seq_len << " tokens, " << duration_text(result.seconds) << "\n";
  out << absl::StrFormat("loss %.4f | perplexity %.4f", result.loss, result.perplexity());
  if (result.bytes) out << absl::StrFormat(" | bits per byte %.4f", result.bits_per_byte());
  out << " | " << with_commas(static_cast<uint64_t>(result.tokens)) << " tokens" << std::endl;
}

/// Fills `result` in for its first `windows`, as many at once as the evaluator is for.
absl::Status judge(Evaluator& evaluator, const gpu::TokenData& data, const ModelText& text,
                   int64_t batch, Evaluation& result) {
  const auto start = std::chrono::steady_clock::now();
  const auto length = static_cast<size_t>(result.seq_len);
  std::vector<int32_t> tokens(static_cast<size_t>(batch) * length);
  std::vector<int32_t> targets(tokens.size());
  result.bytes = 0;
  for (int64_t first = 0; first < result.windows; first += batch) {
    std::fill(targets.begin(), targets.end(), -1);
    for (int64_t row = 0; row < std::min(batch, result.windows - first); ++row) {
      const size_t at = static_cast<size_t>(row) * length;
      SKEIN_RETURN_IF_ERROR(data.validation_sample(static_cast<uint64_t>(first + row),
                                                   std::span(tokens).subspan(at, length),
                                                   std::span(targets).subspan(at, length)));
    }
    SKEIN_RETURN_IF_ERROR(evaluator.add(tokens, targets));
    for (const int32_t target : targets) {
      const std::optional<int64_t> bytes = target < 0 ? 0 : text.byte_count(target);
      result.bytes = result.bytes && bytes ? std::optional(*result.bytes + *bytes) : std::nullopt;
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  result.tokens = evaluator.loss_tokens();
  result.loss = evaluator.loss_sum() / static_cast<double>(result.tokens);
  return absl::OkStatus();
}

}  // namespace

absl::Status evaluate(const EvalOptions& options, std::ostream& out) {
  SKEIN_RETURN_IF_ERROR(check(options));
  EvalData found;
  ModelText text;
  const auto read_beside = [&](const gpu::ModelSource& source) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(found, find_eval_data(source.folder(), options.data));
    SKEIN_ASSIGN_OR_RETURN(text, text_of(found.spec, source));
    SKEIN_RETURN_IF_ERROR(gpu::check_bytes_are_tokens({source.folder()}, found.spec));
    return gpu::check_same_tokens({source.folder()}, found.spec);
  };
  SKEIN_ASSIGN_OR_RETURN(const gpu::ModelSource source,
                         gpu::ModelSource::open(options.checkpoint, read_beside));
  SKEIN_ASSIGN_OR_RETURN(const int64_t seq_len, find_seq_len(options, source));
  SKEIN_ASSIGN_OR_RETURN(const auto data,
                         open_data(found.spec, seq_len, source.model().vocab_size));
  SKEIN_ASSIGN_OR_RETURN(const auto evaluator, Evaluator::create(source, seq_len, options));
  Evaluation result;
  result.checkpoint = source.folder();
  result.data = found.name;
  result.seq_len = seq_len;
  result.windows = data->validation_windows();
  if (options.windows > 0) result.windows = std::min(result.windows, options.windows);
  SKEIN_RETURN_IF_ERROR(judge(*evaluator, *data, text, options.batch, result));
  if (!std::isfinite(result.loss)) {
    return absl::DataLossError(absl::StrCat(source.folder(), ": the loss is ", result.loss,
                                            "; its weights are no finite numbers"));
  }
  print(result, options.as_json, out);
  return absl::OkStatus();
}

}  // namespace skein::cli
