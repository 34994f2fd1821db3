// Drawing text on the CUDA back end: attention with a cache of keys and values against the host's
// and against attention over the whole sequence, and whole decoders. See cuda_ops_test.cpp for the
// plugin.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/model/decoder.hpp"
#include "gpu/model/decoder_pipeline.hpp"
#include "tests/gpu/cuda_ops_fixture.hpp"

namespace skein::gpu {
namespace {

/// Positions that are in the cache already, those that are added, and room for more behind them.
struct Sequence {
  int64_t past, added, spare;
  Ops::Attention shape;  // Heads and their size only.

  int64_t all() const { return past + added; }
  int64_t capacity() const { return all() + spare; }
  Ops::Attention of(int64_t positions) const {
    return {1, positions, shape.heads, shape.kv_heads, shape.head_size};
  }
  std::string name() const {
    return std::to_string(added) + " behind " + std::to_string(past) + " x " +
           std::to_string(shape.head_size) + ", " + std::to_string(shape.heads) + " heads of " +
           std::to_string(shape.kv_heads);
  }
};

class CudaDecoder : public CudaOps {
 protected:
  std::vector<Sequence> sequences() {
    return {{1, 1, 0, {0, 0, 1, 1, 1}},
            {5, 1, 3, {0, 0, 2, 2, 6}},
            {3, 2, 1, {0, 0, 3, 1, 17}},
            {31, 1, 0, {0, 0, 4, 2, 32}},
            {32, 3, 5, {0, 0, 2, 1, 33}},
            {33, 4, 0, {0, 0, 6, 2, 64}},
            {2, 70, 9, {0, 0, 2, 2, 50}},
            {64, 1, 1, {0, 0, 2, 1, 96}},
            {large(1000, 130), 2, 7, {0, 0, 4, 2, 100}},
            {40, 1, 2, {0, 0, 2, 2, 128}},
            {21, 5, 0, {0, 0, 3, 1, 129}},
            {large(2000, 37), 1, 3, {0, 0, 2, 2, 256}}};
  }
};

/// The caches, which are filled by two calls, and what the second one's positions attend to.
Outputs attend_in_two_calls(Bench& bench, const Sequence& sequence) {
  const int64_t width = sequence.shape.qkv_width();
  const int64_t numbers = sequence.shape.key_width() * sequence.capacity();
  const Activations qkv = bench.activations(random_values(sequence.all() * width, 1));
  // What must not be overwritten is behind the positions.
  const Activations keys = bench.activations(random_values(numbers, 2));
  const Activations values = bench.activations(random_values(numbers, 3));
  const Activations out = bench.poisoned_activations(sequence.added * sequence.shape.query_width());
  EXPECT_TRUE(bench
                  .run([&](Ops& ops) {
                    Ops::KeyValueCache cache = {keys.data, values.data, sequence.capacity(), 0};
                    ops.append_to_cache(sequence.of(sequence.past), qkv.data, cache);
                    cache.length = sequence.past;
                    const Ops::Attention added = sequence.of(sequence.added);
                    const Numbers next = qkv.data + sequence.past * width;
                    ops.append_to_cache(added, next, cache);
                    ops.attend_to_cache(added, next, cache, out.data);
                  })
                  .ok());
  return {bench.read(out), bench.read(keys), bench.read(values)};
}

TEST_P(CudaDecoder, AttendsToACacheAsTheHostDoes) {
  for (const Sequence& sequence : sequences()) {
    compare(sequence.name(), {tolerance_of(1e-5, kStored), 0},
            [&](Bench& bench) { return attend_in_two_calls(bench, sequence); });
  }
}

TEST_P(CudaDecoder, AttendsToACacheAsToTheWholeSequence) {
  for (const Sequence& sequence : sequences()) {
    const int64_t width = sequence.shape.query_width();
    const Activations qkv =
        cuda_->activations(random_values(sequence.all() * sequence.shape.qkv_width(), 1));
    const Activations out = cuda_->poisoned_activations(sequence.all() * width);
    const Tensor sums = cuda_->poisoned(sequence.shape.heads * sequence.all());
    ASSERT_TRUE(cuda_
                    ->run([&](Ops& ops) {
                      ops.attention_forward(sequence.of(sequence.all()), qkv.data, out.data,
                                            sums.data);
                    })
                    .ok());
    std::vector<float> whole = cuda_->read(out);
    whole.erase(whole.begin(), whole.begin() + sequence.past * width);
    expect_near(attend_in_two_calls(*cuda_, sequence).front(), whole, tolerance_of(1e-5, kRounded),
                sequence.name());
  }
}

TEST_P(CudaDecoder, GivesARowTheSameBitsWhateverIsComputedWithIt) {
  const Sequence together = {40, 5, 2, {0, 0, 4, 2, 40}};
  const std::vector<float> rows = attend_in_two_calls(*cuda_, together).front();
  const auto width = static_cast<size_t>(together.shape.query_width());
  for (int64_t row = 0; row < together.added; ++row) {
    const Sequence alone = {together.past + row, 1, together.added + together.spare - row - 1,
                            together.shape};
    const auto begin = rows.begin() + row * static_cast<int64_t>(width);
    EXPECT_EQ(attend_in_two_calls(*cuda_, alone).front(),
              std::vector<float>(begin, begin + static_cast<int64_t>(width)));
  }
}

TEST_P(CudaDecoder, RefusesHeadsThatAreTooLarge) {
  const Activations qkv = cuda_->activations(random_values(3 * 257, 1));
  const Activations cache = cuda_->poisoned_activations(2 * 257);
  const Activations out = cuda_->poisoned_activations(257);
  const absl::Status status = cuda_->run([&](Ops& ops) {
    ops.attend_to_cache({1, 1, 1, 1, 257}, qkv.data, {cache.data, cache.data + 257, 1, 0},
                        out.data);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

constexpr int64_t kPositions = 12;
constexpr int32_t kVocabulary = 13;

/// "gpt2", "llama", or "grouped": a Llama whose heads share keys.
plans::ModelSpec model_of(const std::string& family, bool tied) {
  plans::ModelSpec model;
  model.name = family == "gpt2" ? "gpt2" : "llama";
  plans::apply_family(model);
  model.vocab_size = kVocabulary;
  model.positions = kPositions;
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = family == "grouped" ? 2 : 0;
  model.channels = 24;
  model.tied_head = tied;
  return model;
}

absl::Status read_weight(const std::string& name, std::span<float> out) {
  const uint64_t stream = plans::random_stream(name.data(), name.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(0.3 * plans::random_normal(7, stream, i));
  }
  return absl::OkStatus();
}

/// Logits behind several parts of a sequence.
std::vector<std::vector<float>> logits_of(const plans::ModelSpec& model,
                                          const std::vector<DecoderPipeline::Part>& parts) {
  const std::vector<int32_t> tokens = random_tokens(kPositions, kVocabulary, 1);
  auto pipeline = DecoderPipeline::create(model, kPositions, parts, read_weight).value();
  std::vector<std::vector<float>> all;
  for (const size_t count : {5, 1, 1, 3, 1, 1}) {
    const auto begin = static_cast<size_t>(pipeline->length());
    std::vector<float>& logits = all.emplace_back(kVocabulary);
    const absl::Status status =
        pipeline->extend(std::span<const int32_t>(tokens).subspan(begin, count), logits);
    EXPECT_TRUE(status.ok()) << status;
  }
  return all;
}

TEST_P(CudaDecoder, DrawsAsTheHostDoes) {
  const auto host = make_host_device(1);
  Device& cuda = cuda_->device();
  for (const char* family : {"gpt2", "llama", "grouped"}) {
    for (const bool tied : {true, false}) {
      const plans::ModelSpec model = model_of(family, tied);
      const int64_t end = plans::layer_count(model);
      const auto wanted = logits_of(model, {{host.get(), {0, end}}});
      const auto whole = logits_of(model, {{&cuda, {0, end}}});
      const auto mixed =
          logits_of(model, {{&cuda, {0, 2}}, {host.get(), {2, 3}}, {&cuda, {3, end}}});
      // Roundings of a layer add up over all of them.
      const double tolerance = std::string(GetParam()) == "float32" ? 1e-5 : 6e-2;
      for (size_t i = 0; i < wanted.size(); ++i) {
        expect_near(whole[i], wanted[i], tolerance, std::string(family) + " on one GPU");
        expect_near(mixed[i], wanted[i], tolerance, std::string(family) + " beside the host");
      }
      EXPECT_EQ(logits_of(model, {{&cuda, {0, 1}}, {&cuda, {1, 3}}, {&cuda, {3, end}}}), whole)
          << family << " does not depend on where it is cut";
    }
  }
}

TEST_P(CudaDecoder, TakesTheMemoryThatItSays) {
  // The allocator's: what it rounds up to, and how much larger a block that it takes again may be.
  constexpr int64_t kGrain = 512, kWasteParts = 8;
  constexpr int64_t kBuffers = 7;
  Device& cuda = cuda_->device();
  for (const char* family : {"gpt2", "llama"}) {
    const plans::ModelSpec model = model_of(family, /*tied=*/true);
    const plans::LayerRange range = {0, plans::layer_count(model)};
    (void)logits_of(model, {{&cuda, range}});  // Scratch of ops stays.
    const int64_t before = cuda.memory().in_use;
    auto decoder = Decoder::create({model, range, kPositions}, read_weight, cuda).value();
    std::vector<float> logits(kVocabulary);
    const std::vector<int32_t> tokens = {1, 2, 3};
    ASSERT_TRUE(cuda.run({WorkKind::kOther,
                          [&](Ops& ops) {
                            return decoder->extend(ops, {tokens, {}}, logits);
                          }})
                    .ok());
    const int64_t taken = cuda.memory().in_use - before;
    const Decoder::Memory memory = Decoder::memory({model, range, kPositions}, 3, cuda.info());
    const int64_t said = memory.kept_bytes() + memory.working_bytes;
    EXPECT_GE(taken, said) << family;
    EXPECT_LE(taken, said + said / kWasteParts + kBuffers * kGrain) << family;
    const int64_t floats = plans::parameter_count(model) * 4;
    EXPECT_EQ(rounds(), memory.weights_bytes < floats) << "they are there once, in half the bytes";
    EXPECT_EQ(rounds(), memory.passing_bytes > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaDecoder, testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace skein::gpu
