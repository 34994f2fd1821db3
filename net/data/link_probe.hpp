#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"
#include "plans/profile/cluster.hpp"

namespace skein::net {

/// Measures the links between workers through the data plane itself, with the same connections,
/// copies and threads as tensors: the latency is what a small tensor takes from one program to the
/// other. Answers the probes of the others. Thread-safe.
class LinkProbe : public std::enable_shared_from_this<LinkProbe> {
 public:
  /// Opens the streams of worker `self`; `addresses` are those of all workers' data planes. The
  /// plane must outlive the probe's use.
  static std::shared_ptr<LinkProbe> open(DataPlane& plane, plans::WorkerId self,
                                         std::map<plans::WorkerId, std::string> addresses);

  /// Those of all workers now. Who is being measured, or answers, goes on.
  void set_addresses(std::map<plans::WorkerId, std::string> addresses);
  plans::WorkerId self() const { return self_; }

  /// Blocks; the peer may open its streams a little later. DeadlineExceeded if it does not answer
  /// within `patience`. A link on which the large probe takes longer than that has the bandwidth
  /// that it would have if it took just so long.
  absl::StatusOr<plans::LinkSpeed> measure(plans::WorkerId peer,
                                           std::chrono::milliseconds patience);

 private:
  LinkProbe(DataPlane& plane, plans::WorkerId self,
            std::map<plans::WorkerId, std::string> addresses)
      : plane_(plane), self_(self), addresses_(std::move(addresses)) {}

  void open_stream(schema::TensorKind kind, uint32_t floats);
  void on_tensor(const TensorKey& key);
  /// Empty if the worker is not known.
  std::string address_of(plans::WorkerId worker);
  void send(plans::WorkerId to, schema::TensorKind kind, uint64_t number, uint32_t floats);
  /// Seconds from a question to its answer.
  absl::StatusOr<double> ask(plans::WorkerId peer, schema::TensorKind kind,
                             std::chrono::milliseconds patience);
  /// Asks until the peer answers.
  absl::Status knock(plans::WorkerId peer, std::chrono::milliseconds patience);

  DataPlane& plane_;
  const plans::WorkerId self_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::map<plans::WorkerId, std::string> addresses_;  // Guarded by mutex_, like what follows.
  uint64_t asked_ = 0;
  uint64_t last_answer_ = 0;  // Number of the newest question that was answered.
};

}  // namespace skein::net
