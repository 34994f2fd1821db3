#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/text/text_process.hpp"
#include "cli/verbs/model_parts.hpp"
#include "cli/verbs/named_devices.hpp"
#include "gpu/checkpoint/model_source.hpp"

namespace skein::cli {

/// Workers of other processes and machines that draw text together.
struct TextWorkers {
  std::string listen;     // "host:port", where they join; empty: there are none.
  bool insecure = false;  // Allows one that is not a loopback address.
  int64_t count = 0;      // So many are waited for.
};

/// Waits for the workers, whose `devices.threads` and `devices.precision` are for those who say
/// nothing else, and until each has loaded its layers of the model, which it reads from the
/// source's folder. Says on standard error where they are waited for, and who has what. Errors of
/// `actors::TextProcess`; InvalidArgument for options that do not go together.
absl::StatusOr<std::unique_ptr<actors::TextProcess>> gather_text_workers(
    const gpu::ModelSource& source, const DecodingNeed& need, const TextWorkers& workers,
    const DeviceNames& devices);

}  // namespace skein::cli
