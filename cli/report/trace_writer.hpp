#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/coordinator/run_observer.hpp"

namespace skein::cli {

/// Collects the timings of profiled steps for a Chrome trace, which Perfetto opens: a process per
/// worker, a track per kind of work, an arrow from each send to its receive. Not thread-safe.
class TraceWriter {
 public:
  explicit TraceWriter(std::string path) : path_(std::move(path)) {}

  void add(const actors::TimingsReport& report);
  /// What a worker computes on, for the name of its process.
  void set_device(uint32_t worker, const std::string& device) { devices_[worker] = device; }
  /// The process that the worker is, as "pid 4 on a". Its process of the trace has it as a label.
  void set_process(uint32_t worker, const std::string& process) { processes_[worker] = process; }
  bool empty() const { return reports_.empty(); }
  const std::vector<actors::TimingsReport>& reports() const { return reports_; }
  /// Replaces the file by what has been collected so far.
  absl::Status write() const;
  /// The trace as JSON.
  std::string to_json() const;

 private:
  std::string path_;
  std::vector<actors::TimingsReport> reports_;
  std::map<uint32_t, std::string> devices_;
  std::map<uint32_t, std::string> processes_;
};

}  // namespace skein::cli
