#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/rng.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Kills a process between two of its operations on files, or cuts the power of its machine. What
/// an actor does in one event cannot be interrupted here: a copy is made of what lies on the disk
/// at that place, and put back when the event is over, before anybody hears what came of it.
/// Single-threaded.
class CutShort {
 public:
  /// When, and whom.
  struct Order {
    bool at_coordinator = false;  // Else a worker.
    std::string what;             // Before such an operation; empty: any.
    std::string path_part;        // On a path that has this in it.
    uint64_t count = 1;           // The n-th of them from now on.
    /// The disk goes back to how it was before one of the operations since a folder was last
    /// synced, which is drawn: names and contents, all from one moment on, as on file systems with
    /// a journal.
    bool loses_unsynced = false;
  };
  struct Victim {
    std::function<bool(ProcessId)> is_coordinator;
    std::function<void(ProcessId)> die;  // 0: the coordinator that is being started.
    std::function<void()> on_restored;   // The disk is as the dead one has left it.
  };

  /// `folder`: the one that is watched.
  CutShort(World& world, std::string folder, uint64_t seed)
      : world_(world),
        folder_(std::move(folder)),
        rng_(seed, plans::random_stream("cut-short-images", 16)) {}
  ~CutShort() { disarm(); }
  CutShort(const CutShort&) = delete;
  CutShort& operator=(const CutShort&) = delete;

  /// False if one is armed already.
  bool arm(Order order, Victim victim);
  /// Nobody dies any more.
  void disarm();
  /// The coordinator that is being started is dead, and does nothing any more.
  bool has_struck() const { return has_struck_; }
  /// Puts back what it has left. Call it when it has stopped.
  void end_strike();

 private:
  void on_operation(const std::string& path, const std::string& what);
  void strike(ProcessId process);
  std::string make_image();
  void forget_images();
  /// What nobody goes on writing looks as old as it is by the virtual clock: all files of a folder
  /// have one age.
  void date_left(std::chrono::hours age) const;

  World& world_;
  const std::string folder_;
  plans::Rng rng_;
  std::optional<Order> order_;
  Victim victim_;
  std::vector<std::string> images_;  // Since a folder was last synced, in the event in progress.
  bool was_synced_ = false;          // The operation before has synced one.
  uint64_t made_ = 0;                // Images.
  bool has_struck_ = false;
};

}  // namespace skein::sim
