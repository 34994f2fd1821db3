#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

/// The tokens of a job, mapped into memory, cut into windows of T + 1 tokens. Immutable after
/// `open`, so thread-safe.
class TokenData {
 public:
  struct Options {
    plans::DataSpec data;
    int64_t seq_len = 0;     // T
    int64_t vocab_size = 0;  // Tokens must be below it.
    uint64_t seed = 0;       // The seed of the order of samples.
  };

  /// Text is used as bytes; "kjv" is made from Debian's `bible` program and cached under
  /// $XDG_CACHE_HOME or ~/.cache; token files are nanoGPT's raw uint16 or llm.c's with its header,
  /// told apart by the magic number, several of them by a pattern or a manifest (`TokenSource`).
  /// Not every token is looked at: those of a window are checked when it is read.
  /// NotFound, DataLoss (no regular file, truncated, header and size disagree), InvalidArgument
  /// (token beyond the vocabulary, too short for one window); each names the file and what to do.
  static absl::StatusOr<std::unique_ptr<TokenData>> open(const Options& options);
  virtual ~TokenData() = default;

  /// Size of all tokens and a digest, by which workers know that they read the same data: where
  /// files and sources end, all tokens of files of up to a million, and many pieces of larger ones.
  virtual uint64_t bytes() const = 0;
  virtual uint64_t digest() const = 0;
  /// The digest of older checkpoints, of every token, which are all read for it.
  virtual uint64_t digest_of_tokens() const = 0;
  /// Nobody has written into the files since they were opened, or put others in their place.
  virtual bool is_unchanged() const = 0;
  virtual int64_t training_tokens() const = 0;
  virtual int64_t validation_tokens() const = 0;
  virtual int64_t training_windows() const = 0;  // Of one pass.
  virtual int64_t validation_windows() const = 0;

  /// Sample number `sample` of the job (plans::SampleOrder says which window): `tokens` [T] and the
  /// `targets` [T] that follow them by one. Either span may be empty.
  /// Errors as `TokenWindows::read`.
  virtual absl::Status training_sample(uint64_t sample, std::span<int32_t> tokens,
                                       std::span<int32_t> targets) const = 0;
  /// Validation window number `window` % validation_windows(), in the order of the file.
  virtual absl::Status validation_sample(uint64_t window, std::span<int32_t> tokens,
                                         std::span<int32_t> targets) const = 0;
};

}  // namespace skein::gpu
