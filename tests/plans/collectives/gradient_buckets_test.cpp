#include "plans/collectives/gradient_buckets.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace skein::plans {
namespace {

constexpr double kMb = 1024.0 * 1024.0;

ModelSpec model_of(bool tied) {
  ModelSpec model;
  model.layers = 4;
  model.channels = 64;
  model.heads = 4;
  model.tied_head = tied;
  return model;
}

/// All parameters but, in a stage with one end of a tied model, the embedding or its copy.
int64_t floats_of(const ModelSpec& model, const LayerRange& layers) {
  int64_t floats = 0;
  for (const ParameterSpec& parameter : range_parameters(model, layers)) {
    floats += element_count(parameter);
  }
  const bool has_first = layers.begin == 0;
  const bool has_last = layers.end == layer_count(model);
  if (model.tied_head && has_first != has_last) floats -= model.vocab_size * model.channels;
  return floats;
}

/// Calls `check` for every stage of a tied and an untied model.
template <class Check>
void for_all_stages(Check check) {
  for (bool tied : {false, true}) {
    const ModelSpec model = model_of(tied);
    for (int64_t begin = 0; begin < layer_count(model); ++begin) {
      for (int64_t end = begin + 1; end <= layer_count(model); ++end) {
        check(model, LayerRange{begin, end});
      }
    }
  }
}

TEST(GradientBuckets, TileTheStageFromItsEndToItsBeginning) {
  for_all_stages([](const ModelSpec& model, const LayerRange& layers) {
    for (double cap_mb : {0.0, 1e-9, 0.1, 0.2, 0.4, 0.8, 25.0}) {
      int64_t layer = layers.end;
      int64_t floats = floats_of(model, layers);
      for (const GradientBucket& bucket : gradient_buckets(model, layers, cap_mb)) {
        EXPECT_EQ(bucket.layers.end, layer);
        EXPECT_LT(bucket.layers.begin, bucket.layers.end);
        EXPECT_GT(bucket.count, 0);
        EXPECT_EQ(bucket.begin + bucket.count, floats);
        layer = bucket.layers.begin;
        floats = bucket.begin;
      }
      EXPECT_EQ(layer, layers.begin);
      EXPECT_EQ(floats, 0);
    }
  });
}

TEST(GradientBuckets, AreAsLargeAsTheCapAllowsAndNoLayerIsCut) {
  for_all_stages([](const ModelSpec& model, const LayerRange& layers) {
    for (double cap_mb : {1e-9, 0.1, 0.2, 0.4, 0.8}) {
      const auto buckets = gradient_buckets(model, layers, cap_mb);
      for (size_t i = 0; i < buckets.size(); ++i) {
        const auto bytes = static_cast<double>(buckets[i].count * 4);
        EXPECT_TRUE(bytes <= cap_mb * kMb || buckets[i].layers.size() == 1);
        if (i + 1 == buckets.size()) continue;
        const LayerRange& behind = buckets[i + 1].layers;
        const auto one_more = gradient_buckets(model, {layers.begin, behind.end}, 1e-9).front();
        EXPECT_GT(bytes + static_cast<double>(one_more.count * 4), cap_mb * kMb);
      }
    }
  });
}

TEST(GradientBuckets, ZeroAndAnEndlessCapGiveOneBucket) {
  for_all_stages([](const ModelSpec& model, const LayerRange& layers) {
    const GradientBucket all{layers, 0, floats_of(model, layers)};
    for (double cap_mb : {0.0, 1e9, std::numeric_limits<double>::infinity()}) {
      EXPECT_EQ(gradient_buckets(model, layers, cap_mb), std::vector<GradientBucket>{all});
    }
  });
}

TEST(GradientBuckets, OnlyPlainSumsAreCut) {
  JobSpec job;
  for (const char* reducer : {"sum", "hisum"}) {
    job.sync.reducer = reducer;
    EXPECT_EQ(bucket_cap_mb(job), job.comm.bucket_cap_mb) << reducer;
  }
  for (const char* reducer : {"mean", "adasum", "topk", "hitopk", "fp16", "bf16", "topka2a"}) {
    job.sync.reducer = reducer;
    EXPECT_EQ(bucket_cap_mb(job), 0) << reducer;
  }
}

TEST(GradientBuckets, AVanishingCapGivesOneBucketForEachLayer) {
  for_all_stages([](const ModelSpec& model, const LayerRange& layers) {
    EXPECT_EQ(static_cast<int64_t>(gradient_buckets(model, layers, 1e-9).size()), layers.size());
  });
}

}  // namespace
}  // namespace skein::plans
