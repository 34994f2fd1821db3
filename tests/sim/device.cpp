#include "tests/sim/device.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"

namespace skein::sim {
namespace {

/// What a copy of state takes.
constexpr double kOtherUs = 500;

class SimulatedDevice final : public gpu::Device,
                              public std::enable_shared_from_this<SimulatedDevice> {
 public:
  SimulatedDevice(World& world, ProcessId process, DeviceWatch watch, double speed)
      : world_(world),
        process_(process),
        watch_(std::move(watch)),
        speed_(speed),
        pool_(1),
        ops_(pool_) {
    info_.name = "simulated";
    info_.threads = 1;
    info_.speed = speed;
  }

  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override { return gpu::allocate_host(bytes); }
  void set_speed(double speed) override { speed_ = speed; }
  void submit(gpu::Work work, std::function<void(absl::Status)> done) override {
    if (work.kind == gpu::WorkKind::kUpdate) watch_.on_update_begun();
    queue_.push_back({std::move(work), std::move(done), absl::OkStatus(), false});
    if (queue_.size() == 1) start();
  }

 private:
  struct Piece {
    gpu::Work work;
    std::function<void(absl::Status)> done;
    absl::Status status;
    bool has_run = false;
  };

  double duration_us(const gpu::Work& work) {
    const double exact = work.kind == gpu::WorkKind::kOther
                             ? kOtherUs
                             : gpu::sleep_us(watch_.times, work.kind, work.share, speed_);
    return exact * (0.9 + 0.2 * world_.rng().uniform()) + 1;
  }

  void start() {
    Piece& piece = queue_.front();
    // Nobody may rely on when within its time the work is really done.
    if (world_.chance(0.5)) run(piece);
    const auto taken_us = static_cast<uint64_t>(duration_us(piece.work));
    world_.after(taken_us, process_, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->finish();
    });
  }

  void run(Piece& piece) {
    piece.has_run = true;
    if (piece.work.run) piece.status = piece.work.run(ops_);
  }

  void finish() {
    Piece piece = std::move(queue_.front());
    if (!piece.has_run) run(piece);
    queue_.pop_front();
    if (!queue_.empty()) start();
    if (piece.work.kind == gpu::WorkKind::kUpdate && piece.status.ok()) watch_.on_update_ended();
    uint64_t group = 0;
    if (absl::SimpleAtoi(absl::StripPrefix(piece.work.name, "combine"), &group) &&
        piece.status.ok()) {
      watch_.on_copied(group);
    }
    piece.work = {};
    piece.done(piece.status);
  }

  World& world_;
  const ProcessId process_;
  DeviceWatch watch_;
  double speed_;
  gpu::DeviceInfo info_;
  gpu::ThreadPool pool_;
  gpu::HostOps ops_;
  std::deque<Piece> queue_;  // The first one is being worked on.
};

}  // namespace

std::shared_ptr<gpu::Device> make_simulated_device(World& world, ProcessId process,
                                                   DeviceWatch watch, double speed) {
  return std::make_shared<SimulatedDevice>(world, process, std::move(watch), speed);
}

}  // namespace skein::sim
