#pragma once

#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// A job of five steps of two micro-batches.
inline plans::JobSpec small_job(int64_t ranks, int64_t replicas) {
  plans::JobSpec job;
  job.model.layers = 2;
  job.model.heads = 1;
  job.model.channels = 4;
  job.model.vocab_size = 8;
  job.model.positions = 4;
  job.model.tied_head = false;
  job.training.steps = 5;
  job.training.seq_len = 4;
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 4;
  job.parallelism.pipeline_parallel_degree = ranks;
  job.parallelism.data_parallel_replicate_degree = replicas;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  job.comm.bucket_cap_mb = 0;  // One bucket for each group.
  return job;
}

}  // namespace skein::actors
