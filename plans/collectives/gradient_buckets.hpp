#pragma once

#include <cstdint>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// Gradients of consecutive layers of a stage, which one collective adds up.
struct GradientBucket {
  LayerRange layers;
  int64_t begin = 0;  // Floats before it in the stage's gradients, which lie in the layers' order.
  int64_t count = 0;  // Floats; those of a tied parameter whose other use is in another stage are
                      // not counted, here and in `begin`: they have a group of their own.
  bool operator==(const GradientBucket&) const = default;
};

/// Cap of the job's buckets; 0, as if `comm.bucket_cap_mb` said so, where `sync.reducer` is none of
/// the plain sums: others look at the whole gradient, or keep what they have not sent of it.
double bucket_cap_mb(const JobSpec& job);

/// Cuts the gradients of a stage in buckets in the order in which a backward completes them, so
/// that one can be reduced while the layers before it are still computed. From the last layer on, a
/// bucket takes in layers until the next one would make it larger than `cap_mb` MiB; a layer is
/// never cut, so one that is larger is a bucket by itself. Replicas of a stage get the same
/// buckets: it is a function of what they share.
///
/// `cap_mb`   0: a single bucket.
/// Returns    buckets that tile `layers`, which are some, and their floats; last layers first.
/// Source: Li et al., PyTorch Distributed, VLDB'20, section 3.2.3. Differs: the order is that of
/// the layers, which is known; nothing is learnt from the first step.
std::vector<GradientBucket> gradient_buckets(const ModelSpec& model, const LayerRange& layers,
                                             double cap_mb);

}  // namespace skein::plans
