#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/fail_point.hpp"
#include "cli/run/signals.hpp"
#include "cli/spot/metadata_client.hpp"

namespace skein::cli {

struct WorkerArguments {
  std::vector<std::string> join;  // Coordinators, "host:port"; not empty.
  std::string bind = "127.0.0.1";
  std::string device;
  double speed = 0;
  int64_t threads = 0;
  int64_t ordinal = -1;
  int32_t local_rank = 0;
  bool insecure = false;
  int parent = 0;
  std::string spot = "none";
  std::string spot_url = kMetadataUrl;
};

/// Serves the runs until each has ended, on one device if there are several. Returns the exit code:
/// that of the run that ended worst.
int run_worker(const WorkerArguments& arguments, const actors::FailPointHandle& fail_point,
               Signals& signals);

}  // namespace skein::cli
