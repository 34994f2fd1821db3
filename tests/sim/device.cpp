#include "tests/sim/device.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "tests/sim/watched_model.hpp"

namespace skein::sim {
namespace {

/// What a copy of state takes.
constexpr double kOtherUs = 500;

class SimulatedDevice final : public gpu::Device {
 public:
  SimulatedDevice(World& world, const gpu::SleepProfile& times, double speed, int64_t memory_bytes)
      : world_(world), times_(times), speed_(speed), pool_(1), ops_(pool_) {
    info_.name = "simulated";
    info_.threads = 1;
    info_.speed = speed;
    info_.memory_bytes = memory_bytes;
    info_.is_host_memory = memory_bytes == 0;
  }

  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    if (has_failed()) return lost();
    if (info_.memory_bytes == 0) return gpu::allocate_host(bytes);
    if (*in_use_ + bytes > info_.memory_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the device has ", info_.memory_bytes,
                                                       " bytes, of which ", *in_use_,
                                                       " are in use, and not ", bytes, " more"));
    }
    absl::StatusOr<gpu::Buffer> memory = gpu::allocate_host(bytes);
    if (!memory.ok()) return memory;
    *in_use_ += bytes;
    const auto kept = std::make_shared<gpu::Buffer>(*std::move(memory));
    return gpu::Buffer(kept->data(), bytes, [kept, in_use = in_use_, bytes](void*) {
      *kept = gpu::Buffer();
      *in_use -= bytes;
    });
  }
  gpu::DeviceMemory memory() const override {
    return {.in_use = *in_use_, .in_use_max = 0, .cached = 0, .limit = info_.memory_bytes};
  }
  absl::Status upload(std::span<const float> from, float* to) override {
    return has_failed() ? lost() : gpu::Device::upload(from, to);
  }
  absl::Status download(const float* from, std::span<float> to) override {
    const bool is_gone = has_failed() && !WatchersRead::is_one();
    return is_gone ? lost() : gpu::Device::download(from, to);
  }
  void set_speed(double speed) override { speed_ = speed; }
  absl::Status run(gpu::Work work) override {
    if (!work.run) return absl::OkStatus();
    return has_failed() ? lost() : work.run(ops_);
  }
  void break_for_good(DeviceFailure how) { failure_ = how; }
  /// The device does not end what it begins with this piece.
  bool hangs_in(const gpu::Work& work) {
    is_hanging_ = is_hanging_ || (failure_ == DeviceFailure::kHangs && is_of_pass(work.kind));
    return is_hanging_;
  }

  double duration_us(const gpu::Work& work) {
    const double exact = work.kind == gpu::WorkKind::kOther
                             ? kOtherUs
                             : gpu::sleep_us(times_, work.kind, work.share, speed_);
    return exact * (0.9 + 0.2 * world_.rng().uniform()) + 1;
  }

 private:
  bool has_failed() const { return failure_ == DeviceFailure::kFails; }
  static absl::Status lost() { return absl::InternalError("the simulated device is lost"); }
  static bool is_of_pass(gpu::WorkKind kind) {
    return kind != gpu::WorkKind::kOther && kind != gpu::WorkKind::kWarmUp;
  }

  World& world_;
  const gpu::SleepProfile times_;
  double speed_;
  std::optional<DeviceFailure> failure_;
  bool is_hanging_ = false;
  gpu::DeviceInfo info_;
  gpu::ThreadPool pool_;
  gpu::HostOps ops_;
  const std::shared_ptr<int64_t> in_use_ = std::make_shared<int64_t>(0);  // Bytes.
};

/// Does the work of the product's Device in virtual time.
struct TimedWork : std::enable_shared_from_this<TimedWork> {
  struct Piece {
    actors::DevicePiece parts;
    absl::Status status;
    bool has_run = false;
    std::optional<std::chrono::steady_clock::time_point> begun;  // On a device that is shared.
  };

  TimedWork(World& in, ProcessId of, DeviceWatch seen, DeviceSharing with,
            std::shared_ptr<SimulatedDevice> by)
      : world(in),
        process(of),
        watch(std::move(seen)),
        sharing(std::move(with)),
        device(std::move(by)) {}

  /// From now on the device is asked for.
  void join_gate() {
    if (!sharing.gate) return;
    SharedGate::Work work;
    work.start = [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->start();
    };
    work.step = [weak = weak_from_this()] {
      auto self = weak.lock();
      if (!self || self->queue.empty()) return -1;
      const gpu::Work& oldest = self->queue.front().parts.work;
      return oldest.need.need == plans::PieceNeed::kTurn ? oldest.piece.step : -1;
    };
    work.generation = sharing.generation;
    work.is_synchronous = sharing.is_synchronous;
    sharing.gate->set_work(sharing.job, std::move(work));
  }

  void take(actors::DevicePiece parts) {
    if (parts.work.kind == gpu::WorkKind::kUpdate) watch.on_update_begun();
    const plans::DevicePieceNeed need = parts.work.need;
    queue.push_back({std::move(parts), absl::OkStatus(), false, std::nullopt});
    if (sharing.gate) return sharing.gate->request(sharing.job, need);
    if (queue.size() == 1) start();
  }

  void start() {
    Piece& piece = queue.front();
    if (device->hangs_in(piece.parts.work)) {
      return world.trace(world.name(process), " hangs in ", piece.parts.work.name);
    }
    if (sharing.gate) piece.begun = world.system().clock().now();
    // Nobody may rely on when within its time the work is really done.
    if (world.chance(0.5)) run(piece);
    const auto taken_us = static_cast<uint64_t>(device->duration_us(piece.parts.work));
    world.after(taken_us, process, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->finish();
    });
  }

  void run(Piece& piece) const {
    piece.has_run = true;
    piece.status = device->run(piece.parts.work);
  }

  void finish() {
    Piece piece = std::move(queue.front());
    if (!piece.has_run) run(piece);
    queue.pop_front();
    const gpu::Work& work = piece.parts.work;
    if (work.kind == gpu::WorkKind::kUpdate && piece.status.ok()) watch.on_update_ended();
    uint64_t group = 0;
    if (absl::SimpleAtoi(absl::StripPrefix(work.name, "average"), &group) && piece.status.ok()) {
      watch.on_copied(group);
    }
    // Behind those who look at what it has left: the next piece may run on the spot.
    if (sharing.gate) {
      sharing.gate->end(sharing.job);
    } else if (!queue.empty()) {
      start();
    }
    piece.parts.work = {};
    actors::finish(std::move(piece.parts), piece.status, world.system().clock().now(), piece.begun);
  }

  World& world;
  const ProcessId process;
  DeviceWatch watch;
  const DeviceSharing sharing;
  const std::shared_ptr<SimulatedDevice> device;
  std::deque<Piece> queue;  // The first one is being worked on.
};

struct TimedWorkState {
  std::shared_ptr<TimedWork> work;
};

actors::Device::behavior_type timed_device(actors::Device::stateful_pointer<TimedWorkState> self,
                                           std::shared_ptr<TimedWork> work) {
  self->state.work = std::move(work);
  return {[self](const actors::DeviceRequest& request) {
    self->state.work->take(std::move(*request.piece));
  }};
}

}  // namespace

void break_device(gpu::Device& device, DeviceFailure how) {
  dynamic_cast<SimulatedDevice&>(device).break_for_good(how);
}

std::shared_ptr<gpu::Device> make_simulated_device(World& world, const gpu::SleepProfile& times,
                                                   double speed, int64_t memory_bytes) {
  return std::make_shared<SimulatedDevice>(world, times, speed, memory_bytes);
}

actors::Device spawn_simulated_device(World& world, ProcessId process, DeviceWatch watch,
                                      DeviceSharing sharing,
                                      const std::shared_ptr<gpu::Device>& device) {
  auto work = std::make_shared<TimedWork>(world, process, std::move(watch), std::move(sharing),
                                          std::dynamic_pointer_cast<SimulatedDevice>(device));
  work->join_gate();
  return world.system().spawn(timed_device, std::move(work));
}

}  // namespace skein::sim
