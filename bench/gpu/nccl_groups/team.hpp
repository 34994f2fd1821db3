#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::bench {

/// A rank in a process of its own, which talks through pipes (`run_rank`).
class RankProcess {
 public:
  /// Starts this program again as a rank. NCCL takes each for a host of its own, as it refuses two
  /// ranks that share a GPU of one host.
  RankProcess(int64_t floats, int number);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess(const RankProcess&) = delete;

  void send(const std::string& line);
  /// The next line. Unavailable if the process ended, DeadlineExceeded after long.
  absl::StatusOr<std::string> line();
  /// The answer to a command without its "ok ". Internal with what went wrong.
  absl::StatusOr<std::string> answer();
  /// Waits until it has ended by itself.
  void await_death();

 private:
  pid_t process_ = 0;
  int to_ = -1;
  int from_ = -1;
  std::string read_;
};

/// Ranks that do the same at once.
class Team {
 public:
  Team(int64_t floats, int count);

  int size() const { return static_cast<int>(ranks_.size()); }
  RankProcess& rank(int number) { return ranks_[static_cast<size_t>(number)]; }
  /// What the ranks said when they started: "ready nccl 2.28.9 ...", or "none WHY".
  const std::string& greeting() const { return greeting_; }

  /// Sends each of `members` its command, by position, and returns the answers.
  absl::StatusOr<std::vector<std::string>> ask(const std::vector<int>& members,
                                               const std::vector<std::string>& commands);
  absl::StatusOr<std::vector<std::string>> ask_all(const std::vector<int>& members,
                                                   const std::string& command);

 private:
  std::vector<RankProcess> ranks_;
  std::string greeting_;
};

}  // namespace skein::bench
