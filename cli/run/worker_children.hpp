#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/run/run_folder.hpp"

namespace skein::cli {

/// Worker processes of `skein train` on this machine. Whatever happens to us, none outlives us:
/// each dies with its parent, and the destructor kills and reaps what is left.
class WorkerChildren {
 public:
  WorkerChildren() = default;
  ~WorkerChildren();
  WorkerChildren(const WorkerChildren&) = delete;
  WorkerChildren& operator=(const WorkerChildren&) = delete;

  /// Starts this program as a worker of the runs at these addresses, with its output in
  /// logs/worker-<n>.log of the folder. Called again, it starts one more. A child's local rank is
  /// the smallest that is free.
  absl::Status start(const std::vector<std::string>& addresses, const RunFolder& folder);

  /// How a child has ended badly, and at which addresses it was to join.
  struct Fault {
    absl::Status status;  // Which one, how, and the end of its log.
    std::vector<std::string> addresses;
  };
  /// In the order in which they were found; it only grows.
  const std::vector<Fault>& faults();
  /// How many have not ended.
  size_t living();
  void kill_all();

 private:
  struct Child {
    pid_t pid = 0;
    int64_t local_rank = 0;
    std::string log;
    std::vector<std::string> addresses;
    bool ended = false;
  };
  /// Looks who has ended.
  void reap();
  /// The smallest one that no living child has.
  int64_t free_local_rank();

  std::vector<Child> children_;
  std::vector<Fault> faults_;
};

/// Called first in a worker process that another one started: it dies when `parent` does.
absl::Status die_with_parent(int parent);

}  // namespace skein::cli
