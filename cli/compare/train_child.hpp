#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::cli {

/// One `skein train` process of this program. It and its workers end when this object or this
/// process does.
class TrainChild {
 public:
  /// Starts `skein train` with these words; what it prints goes into the file `log`.
  static absl::StatusOr<std::unique_ptr<TrainChild>> start(std::vector<std::string> words,
                                                           const std::string& log);
  ~TrainChild();
  TrainChild(const TrainChild&) = delete;
  TrainChild& operator=(const TrainChild&) = delete;

  /// Its exit code once it has ended, 128 + n if signal n ended it.
  std::optional<int> poll();
  void signal(int number);

 private:
  explicit TrainChild(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::optional<int> ended_;
};

}  // namespace skein::cli
