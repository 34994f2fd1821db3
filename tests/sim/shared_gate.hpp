#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "actors/device/device_share.hpp"
#include "plans/share/device_turns.hpp"
#include "tests/sim/broken_messages.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Which position each pass has had: the same on every device, and growing on each.
class TurnLog {
 public:
  struct Pass {
    uint64_t job = 0;
    uint64_t generation = 0;
    int32_t step = 0;
    auto operator<=>(const Pass&) const = default;
  };
  /// `fail`: told what does not hold.
  explicit TurnLog(std::function<void(const std::string&)> fail) : fail_(std::move(fail)) {}

  void on_pass(const Pass& pass, uint64_t position);
  void fail(const std::string& what) const { fail_(what); }

 private:
  const std::function<void(const std::string&)> fail_;
  std::map<Pass, uint64_t> positions_;
};

/// The device of a machine on which two jobs have a worker each, as the product's `DeviceGate`, in
/// virtual time.
class SharedGate : public std::enable_shared_from_this<SharedGate> {
 public:
  SharedGate(World& world, TurnLog& log, Mutation mutation)
      : world_(world), log_(log), mutation_(mutation) {}

  /// A job's work there. `start` begins with its oldest piece; `generation` is that of its plan.
  struct Work {
    std::function<void()> start;
    std::function<uint64_t()> generation;
    std::function<int32_t()> step;  // That its oldest piece is of; below 0: of none.
    /// All its replicas do every step together, so that a step is one pass.
    bool is_synchronous = true;
  };
  /// Until the share is gone.
  std::shared_ptr<actors::DeviceShare> join(const plans::DeviceJob& job);
  void set_work(uint64_t job, Work work) { works_[job] = std::move(work); }
  /// The job's process is dead.
  void remove(uint64_t job);
  void request(uint64_t job, const plans::DevicePieceNeed& need);
  void end(uint64_t job);
  /// The job says that it has quiesced: it must take no turns any more.
  void on_quiesced(uint64_t job);

 private:
  class Share;

  void enter(uint64_t job, uint64_t position);
  void leave(uint64_t job);
  void end_passes(uint64_t job);
  void advance();
  void note_pass(uint64_t job);

  World& world_;
  TurnLog& log_;
  const Mutation mutation_;
  plans::DeviceTurns turns_;
  std::map<uint64_t, Work> works_;
  std::map<int64_t, std::pair<uint64_t, uint64_t>> last_;  // By priority: the newest turn.
  std::map<uint64_t, int64_t> priorities_;
  uint64_t wakes_ = 0;
};

}  // namespace skein::sim
