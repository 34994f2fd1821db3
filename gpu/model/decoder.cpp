#include "gpu/model/decoder.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/model/head.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/model/rotary_turns.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Which layers of the model there are.
struct Extent {
  explicit Extent(const Decoder::Options& options)
      : has_embedding(options.layers.begin == 0),
        has_head(options.layers.end == plans::layer_count(options.model)),
        blocks{std::max<int64_t>(options.layers.begin, 1),
               std::min(options.layers.end, options.model.layers + 1)} {
    blocks.end = std::max(blocks.begin, blocks.end);
  }
  bool has_embedding, has_head;
  plans::LayerRange blocks;
};

/// Numbers in the cache of one block, the keys and as many values.
int64_t cache_numbers(const Decoder::Options& options) {
  return 2 * plans::key_width(options.model) * options.positions;
}

/// What the positions that are added at once are computed in.
struct WorkingNumbers {
  WorkingNumbers(const Decoder::Options& options, int64_t added, const LogitsLayout& logits) {
    const LayerShape shape = {options.model, 1, added};
    const Extent extent(options);
    passing = 2 * shape.activations();
    if (extent.blocks.size() > 0) {
      const auto block = make_block(shape);
      passing += block->stash_numbers();
      scratch = block->scratch_numbers();
      statistics = block->statistics_floats();
    }
    if (extent.has_head) {
      const Head head({options.model, 1, 1}, logits);
      scratch = std::max(scratch, head.scratch_numbers());
      statistics = std::max(statistics, head.statistics_floats());
    }
  }
  int64_t passing = 0, scratch = 0;  // In the type of activations.
  int64_t statistics = 0;            // float32
};

class TransformerDecoder final : public Decoder {
 public:
  TransformerDecoder(const Options& options, Device& device)
      : options_(options),
        extent_(options),
        device_(device),
        type_(device.info().activations),
        head_({options.model, 1, 1}, device.info().logits) {}

  absl::Status load(const ReadWeight& read) {
    if (extent_.blocks.size() > 0) {
      SKEIN_ASSIGN_OR_RETURN(caches_, device_.allocate(extent_.blocks.size() *
                                                       cache_numbers(options_) * bytes_of(type_)));
      SKEIN_ASSIGN_OR_RETURN(turns_,
                             upload_rotary_turns(options_.model, options_.positions, device_));
    }
    SKEIN_ASSIGN_OR_RETURN(weights_,
                           DecoderWeights::load(options_.model, options_.layers, read, device_));
    return absl::OkStatus();
  }

  int64_t length() const override { return length_; }
  void clear() override { length_ = 0; }

  absl::Status extend(Ops& ops, const Input& input, std::span<float> output) override {
    const int64_t c = options_.model.channels;
    const int64_t count = extent_.has_embedding
                              ? static_cast<int64_t>(input.tokens.size())
                              : static_cast<int64_t>(input.activations.size()) / c;
    SKEIN_RETURN_IF_ERROR(check(input, count, output));
    SKEIN_RETURN_IF_ERROR(reserve(count));
    const LayerShape shape = {options_.model, 1, count};
    Numbers x = passing_.numbers(type_);
    if (extent_.has_embedding) {
      embed(ops, input.tokens, x);
    } else {
      ops.copy_in(input.activations, x);
    }
    x = run_blocks(ops, shape, x);
    if (extent_.has_head) {
      head_.logits(ops, weights_.head(), x, count - 1,
                   {scratch_.numbers(type_), statistics_.floats()}, output);
    } else {
      ops.copy_out(x, output);
    }
    length_ += count;
    return absl::OkStatus();
  }

 private:
  absl::Status check(const Input& input, int64_t count, std::span<const float> output) const {
    const int64_t c = options_.model.channels;
    const int64_t outputs = extent_.has_head ? options_.model.vocab_size : count * c;
    const bool fits =
        count >= 1 && length_ + count <= options_.positions &&
        (extent_.has_embedding || static_cast<int64_t>(input.activations.size()) == count * c) &&
        static_cast<int64_t>(output.size()) == outputs;
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(count, " tokens behind ", length_, " of ",
                                                   options_.positions, ", and ", output.size(),
                                                   " of ", outputs, " outputs"));
  }

  void embed(Ops& ops, std::span<const int32_t> tokens, Numbers x) const {
    const int64_t c = options_.model.channels;
    const std::vector<float*>& tables = weights_.layer(0).weights;
    ops.embedding_forward({tokens, static_cast<int64_t>(tokens.size()), c}, tables[0],
                          tables.size() > 1 ? tables[1] + length_ * c : nullptr, x);
  }

  /// Returns where the activations are in the end; they begin at the beginning of `passing_`.
  Numbers run_blocks(Ops& ops, const LayerShape& shape, Numbers x) const {
    if (extent_.blocks.size() == 0) return x;
    const auto block = make_block(shape);
    Numbers y = x + shape.activations();
    Layer::Memory memory;
    memory.stash = y + shape.activations();
    memory.statistics = statistics_.floats();
    memory.scratch = scratch_.numbers(type_);
    if (plans::has_rotary(options_.model)) {
      memory.turns = turns_.floats() + length_ * plans::head_size(options_.model);
    }
    Numbers keys = caches_.numbers(type_);
    for (int64_t layer = extent_.blocks.begin; layer < extent_.blocks.end; ++layer) {
      memory.input = x;
      memory.cache = {keys, keys + cache_numbers(options_) / 2, options_.positions, length_};
      keys = keys + cache_numbers(options_);
      block->forward(ops, weights_.layer(layer), memory, y);
      std::swap(x, y);
    }
    return x;
  }

  /// Memory for the largest number of positions so far.
  absl::Status reserve(int64_t added) {
    if (added <= reserved_) return absl::OkStatus();
    const WorkingNumbers numbers(options_, added, device_.info().logits);
    const int64_t bytes = bytes_of(type_);
    reserved_ = 0;
    for (Buffer* memory : {&passing_, &scratch_, &statistics_}) *memory = Buffer();
    SKEIN_ASSIGN_OR_RETURN(passing_, device_.allocate(numbers.passing * bytes));
    SKEIN_ASSIGN_OR_RETURN(scratch_, device_.allocate(numbers.scratch * bytes));
    SKEIN_ASSIGN_OR_RETURN(statistics_, device_.allocate(float_bytes(numbers.statistics)));
    reserved_ = added;
    return absl::OkStatus();
  }

  Options options_;
  Extent extent_;
  Device& device_;
  NumberType type_;
  Head head_;  // For one row; used if the layers end with it.
  DecoderWeights weights_;
  Buffer turns_;
  Buffer caches_;  // Keys, then values, [K, positions, D] each, for each block.
  int64_t length_ = 0;
  int64_t reserved_ = 0;  // Positions that the memory below is for.
  Buffer passing_, scratch_, statistics_;
};

absl::Status check(const Decoder::Options& options, const DeviceInfo& device) {
  if (!device.computes) {
    return absl::InvalidArgumentError(
        absl::StrCat("no text is drawn on ", device.name, ", which computes nothing"));
  }
  const plans::ModelSpec& model = options.model;
  if (options.positions < 1 || options.positions > model.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.positions, " positions, the model is made for ", model.positions));
  }
  const auto& [begin, end] = options.layers;
  if (begin < 0 || begin >= end || end > plans::layer_count(model)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layers [", begin, ", ", end, ") of a model with ", plans::layer_count(model)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::create(const Options& options,
                                                         const ReadWeight& read, Device& device) {
  SKEIN_RETURN_IF_ERROR(check(options, device.info()));
  auto decoder = std::make_unique<TransformerDecoder>(options, device);
  SKEIN_RETURN_IF_ERROR(decoder->load(read));
  return std::unique_ptr<Decoder>(std::move(decoder));
}

Decoder::Memory Decoder::memory(const Options& options, int64_t added, const DeviceInfo& device) {
  const WorkingNumbers working(options, added, device.logits);
  const int64_t blocks = Extent(options).blocks.size();
  const bool has_turns = blocks > 0 && plans::has_rotary(options.model);
  const int64_t turns = has_turns ? options.positions * plans::head_size(options.model) : 0;
  const int64_t bytes = bytes_of(device.activations);
  Memory memory;
  memory.weights_bytes = DecoderWeights::bytes(options.model, options.layers, device.activations);
  memory.cache_bytes = blocks * cache_numbers(options) * bytes;
  memory.working_bytes =
      (working.passing + working.scratch) * bytes + float_bytes(working.statistics + turns);
  if (device.activations != NumberType::kFloat32) {
    memory.passing_bytes = float_bytes(std::max(
        {DecoderWeights::kPieceFloats, options.model.vocab_size, added * options.model.channels}));
  }
  return memory;
}

plans::LayerRoom Decoder::room(Options options, int64_t added, const DeviceInfo& device) {
  const int64_t layers = plans::layer_count(options.model);
  plans::LayerRoom room;
  int64_t sum = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    options.layers = {layer, layer + 1};
    room.layer_bytes.push_back(memory(options, added, device).kept_bytes());
    sum += room.layer_bytes.back();
  }
  options.layers = {0, layers};
  const Memory whole = memory(options, added, device);
  room.fixed_bytes = whole.fixed_bytes();
  room.shared_bytes = std::max<int64_t>(sum - whole.kept_bytes(), 0);
  return room;
}

int64_t context_begin(int64_t count, int64_t window) {
  const int64_t step = std::max<int64_t>(window / 2, 1);
  return count <= window ? 0 : (count - window + step - 1) / step * step;
}

}  // namespace skein::gpu
