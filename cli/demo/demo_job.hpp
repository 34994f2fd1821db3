#pragma once

namespace skein::cli {

/// What the demo trains: a small GPT on the King James Bible, byte by byte. The speeds of the
/// devices are emulated: together they need no more than two cores, and the worker that joins later
/// is as fast as the first one. Micro-batches of one sample and an odd number of them leave the
/// planner no choice but a pipeline: nothing can be split over replicas. A copy of the state after
/// each step, in another worker's memory, means that a killed worker costs no committed step, or
/// the last one, if its copy was still on its way.
/// Speeds are measured once: where all workers share two cores, they change all the time.
inline constexpr char kDemoJob[] = R"([job]
name = "demo"

[model]
n_layer = 12
n_head = 4
n_embd = 64
vocab_size = 256
tie_word_embeddings = false

[data]
dataset = "kjv"

[training]
steps = 1000000
seq_len = 128
micro_batch_size = 1
global_batch_size = 13

[optimizer]
lr = 3e-3

[lr_scheduler]
warmup_steps = 20
decay_type = "none"

[parallelism]
pipeline_parallel_degree = "auto"

[device]
speed = 1.0
speeds = [1.0, 1.0, 0.5, 0.5]

[elastic]
snapshot_interval = 1
watch_speeds = false

[validation]
batches = 0

[checkpoint]
interval = 1000000

[profiling]
profile_freq = 10
)";

inline constexpr int kDemoWorkers = 4;

}  // namespace skein::cli
