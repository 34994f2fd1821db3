#include "plans/collectives/gradient_buckets.hpp"

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr double kFloatsOfMb = 1024.0 * 1024.0 / sizeof(float);

/// Floats of a layer that the group of its stage adds up.
int64_t stage_floats(const ModelSpec& model, int64_t layer, const LayerRange& stage) {
  const bool has_both = stage.begin == 0 && stage.end == layer_count(model);
  int64_t floats = 0;
  bool is_first = true;
  for (const ParameterSpec& parameter : layer_parameters(model, layer, stage)) {
    // The tied embedding is the first parameter of all; its other use is marked as a copy.
    const bool is_embedding = layer == 0 && is_first;
    const bool is_tied = model.tied_head && !has_both && (is_embedding || parameter.tied_copy);
    if (!is_tied) floats += element_count(parameter);
    is_first = false;
  }
  return floats;
}

}  // namespace

double bucket_cap_mb(const JobSpec& job) {
  const bool adds_up = job.sync.reducer == "sum" || job.sync.reducer == "hisum";
  return adds_up ? job.comm.bucket_cap_mb : 0;
}

std::vector<GradientBucket> gradient_buckets(const ModelSpec& model, const LayerRange& layers,
                                             double cap_mb) {
  SKEIN_CHECK(layers.size() > 0) << "a stage has layers";
  std::vector<GradientBucket> buckets;
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    const int64_t floats = stage_floats(model, layer, layers);
    const bool fits =
        !buckets.empty() &&
        (cap_mb == 0 || static_cast<double>(buckets.back().count + floats) <= cap_mb * kFloatsOfMb);
    if (!fits) buckets.push_back({{layer, layer + 1}, 0, 0});
    buckets.back().layers.begin = layer;
    buckets.back().count += floats;
  }
  int64_t begin = 0;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    bucket->begin = begin;
    begin += bucket->count;
  }
  return buckets;
}

}  // namespace skein::plans
