#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/model/sequence_model.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/text/text_messages.hpp"

namespace skein::actors {

struct TextOptions {
  plans::TextRequest request;
  plans::JobSpec job;          // Its model, and what workers are told of their devices.
  std::string job_config;      // The same as text, sent to workers.
  uint64_t config_digest = 0;  // Workers must read the same from it.
  std::string listen_address = "127.0.0.1:0";
  bool insecure = false;     // Allows an address that is not a loopback one.
  int64_t worker_count = 1;  // Workers to wait for, >= 1.
};

/// A model that draws text whose layers are on workers, which join this process as they join a run.
/// Used by one thread.
class TextProcess : public gpu::SequenceModel {
 public:
  /// Listens. InvalidArgument or Unavailable if that cannot be.
  static absl::StatusOr<std::unique_ptr<TextProcess>> start(TextOptions options);

  /// "127.0.0.1:29400", where workers join.
  virtual const std::string& address() const = 0;
  /// Waits until as many workers have joined and loaded their layers. ResourceExhausted if the
  /// model does not fit; Unavailable or InvalidArgument if a worker is lost or cannot go on. These
  /// are also errors of `extend`, after which no other call succeeds.
  virtual absl::Status wait() = 0;
};

}  // namespace skein::actors
