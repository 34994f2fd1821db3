// Tokens per second that a model draws on one host device, with the keys and values of what it has
// seen, and without them: then the whole sequence is computed for each token.
//   decoding THREADS TOKENS [FLAVOR]
// Greedy text from a model with random weights: that of bench/host_speed.py, or a flavor. Of that
// only the tokens behind the first TOKENS are timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/seconds_since.hpp"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/job/model_spec.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using skein::bench::seconds_since;

constexpr int kRounds = 3;
constexpr int kTimedTokens = 8;

class Drawing {
 public:
  Drawing(const skein::plans::ModelSpec& model, int64_t positions, int32_t threads)
      : device_(skein::gpu::make_host_device(threads)),
        logits_(static_cast<size_t>(model.vocab_size)) {
    skein::plans::Rng rng(1);
    const auto read = [&](const std::string&, std::span<float> out) {
      for (float& each : out) each = static_cast<float>(rng.uniform() - 0.5) * 0.2F;
      return absl::OkStatus();
    };
    decoder_ = skein::gpu::Decoder::create(
                   {model, {0, skein::plans::layer_count(model)}, positions}, read, *device_)
                   .value();
  }

  /// The likeliest token behind `tokens`, of which the last `added` are computed.
  int32_t next(const std::vector<int32_t>& tokens, size_t added) {
    if (added == tokens.size()) decoder_->clear();
    skein::gpu::Work work;
    work.run = [&](skein::gpu::Ops& ops) {
      return decoder_->extend(ops, {std::span(tokens).last(added), {}}, logits_);
    };
    SKEIN_CHECK(device_->run(std::move(work)).ok());
    return static_cast<int32_t>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }

  /// Draws up to `count` tokens. Returns the seconds that those took.
  double draw(std::vector<int32_t>& tokens, size_t count, bool keeps) {
    const Clock::time_point start = Clock::now();
    while (tokens.size() < count) tokens.push_back(next(tokens, keeps ? 1 : tokens.size()));
    return seconds_since(start);
  }

 private:
  std::unique_ptr<skein::gpu::Device> device_;  // First made, last destroyed.
  std::unique_ptr<skein::gpu::Decoder> decoder_;
  std::vector<float> logits_;
};

struct Rates {
  std::vector<double> kept, computed;  // Tokens per second of each round.
};

void print(const char* what, Rates rates) {
  std::sort(rates.kept.begin(), rates.kept.end());
  std::sort(rates.computed.begin(), rates.computed.end());
  const double kept = rates.kept[kRounds / 2], computed = rates.computed[kRounds / 2];
  std::printf("%-28s %9.1f [%.1f, %.1f] %9.2f [%.2f, %.2f] %7.1fx\n", what, kept,
              rates.kept.front(), rates.kept.back(), computed, rates.computed.front(),
              rates.computed.back(), kept / computed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: decoding THREADS TOKENS [FLAVOR]\n");
    return 2;
  }
  const auto count = static_cast<size_t>(std::atoi(argv[2]));
  skein::plans::ModelSpec model;
  if (argc == 4) {
    model.flavor = argv[3];
    SKEIN_CHECK(skein::plans::apply_flavor(model).ok()) << argv[3];
  }
  model.positions = static_cast<int64_t>(count) + kTimedTokens;
  Drawing drawing(model, model.positions, std::atoi(argv[1]));
  std::printf("%-28s %28s %28s\n", "tokens per second", "keys and values kept", "computed anew");
  Rates all, last;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int32_t> kept = {1}, computed = {1};
    if (argc == 3) {
      drawing.next(kept, 1);  // Forgets what was before.
      kept = {1};
      all.kept.push_back(static_cast<double>(count) / drawing.draw(kept, count, true));
      all.computed.push_back(static_cast<double>(count) / drawing.draw(computed, count, false));
      SKEIN_CHECK(kept == computed) << "the texts are not the same";
    }
    kept.resize(count, 1);
    computed = kept;
    kept.push_back(drawing.next(kept, count));
    last.kept.push_back((kTimedTokens - 1) / drawing.draw(kept, count + kTimedTokens, true));
    last.computed.push_back(kTimedTokens / drawing.draw(computed, count + kTimedTokens, false));
    SKEIN_CHECK(kept == computed) << "the texts are not the same";
  }
  if (argc == 3) print(("the first " + std::to_string(count)).c_str(), all);
  print(("the " + std::to_string(kTimedTokens) + " behind them").c_str(), last);
}
