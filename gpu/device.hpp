#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/numbers.hpp"
#include "plans/schedule/schedule.hpp"
#include "plans/share/device_piece.hpp"
#include "plans/simulator/slowdown.hpp"

namespace skein::gpu {

class DeviceGroups;
class Ops;

/// Memory of a device, freed with the object. Move-only; the device must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// Address on the device: for a host device it may be read and written directly.
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  Numbers numbers(NumberType type) const { return {data_, type}; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void(void*)> release_;
};

enum class WorkKind {
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kUpdate,
  kWarmUp,  // Done once, so that libraries choose their kernels: no emulation takes time for it.
  kOther,
};

/// A piece of work for a device: `run` enqueues ops; what it captures lives until they have ended.
struct Work {
  WorkKind kind = WorkKind::kOther;
  std::function<absl::Status(Ops&)> run;
  /// Amount of the work for a device that only sleeps, in the unit of `SleepProfile`.
  double share = 1;
  /// Which piece it is, for a device that emulates a scenario; `work_us` is the device's to say.
  plans::WorkPiece piece = {.device = -1, .index = -1};  // Device -1: no scenario applies.
  int32_t device_count = 1;                              // That take turns in an H3.
  std::string name;  // The action in the schedule, as "0F3", for profilers.
  /// When it was given to whoever runs it: a device that only sleeps counts from then, if it was
  /// free, so that the wake of a thread is no work. Zero: when `Device::run` is called.
  std::chrono::steady_clock::time_point given = {};
  /// What a device that several jobs share goes by. It calls `on_begin`, if there is one, when it
  /// begins with this piece after others' work, or in another's turn, had kept it waiting.
  plans::DevicePieceNeed need = {};
  std::function<void()> on_begin = {};
};

/// How logits lie in a device's memory while a head works, a piece of the rows at a time.
struct LogitsLayout {
  /// Rows of a piece, and numbers in it, which are fewer rows of a larger vocabulary. As it is,
  /// they stay in the second-level cache of most machines for a byte-level vocabulary, and take 64
  /// MB in float32 for GPT-2's.
  int64_t rows_max = 1024;
  int64_t numbers_max = 16 << 20;
  /// Rows lie a multiple of so many numbers apart.
  int64_t stride_multiple = 1;
};

struct DeviceInfo {
  /// "cpu x1", "sleep", "cuda:0 NVIDIA H200 (0000:1b:00.0)"; `plans::kind_of_device` reads it.
  std::string name;
  int32_t threads = 0;   // Host threads; 0 for others.
  double speed = 1.0;    // Emulated speed when it was made; 1.0 is the device itself.
  bool computes = true;  // False for a device that only sleeps: results are zeros.
  /// The type of activations, their gradients, and weights as products read them.
  NumberType activations = NumberType::kFloat32;
  LogitsLayout logits = {};
  bool is_host_memory = true;  // The host may read and write what `allocate` gives.
  /// Memory of its own that was free when it was made; 0: it uses the host's, or does not know.
  int64_t memory_bytes = 0;
  std::string remark;  // What is slower than it could be, and why; mostly empty.
};

/// What a device has given out, in bytes.
struct DeviceMemory {
  int64_t in_use = 0;
  int64_t in_use_max = 0;
  int64_t cached = 0;  // Taken from the system, free to be given out again.
  int64_t limit = 0;   // 0: as much as there is.
};

/// Something that computes: some threads of the processor, or a GPU. Thread-safe. Whoever wants
/// work done in order, and not to wait for it, gives it to an actor (actors/device).
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  /// Zeroed memory, aligned to 64 bytes. ResourceExhausted with sizes if there is none.
  virtual absl::StatusOr<Buffer> allocate(int64_t bytes) = 0;
  /// Zeroed host memory, aligned to 64 bytes, which copies from and to the device are fastest with.
  virtual absl::StatusOr<Buffer> allocate_host_visible(int64_t bytes);
  /// Between the host and memory of this device, behind all that ops have begun. Any thread may
  /// call, and waits for the end.
  virtual absl::Status upload(std::span<const float> from, float* to);
  virtual absl::Status download(const float* from, std::span<float> to);
  /// So much is about to be allocated, in place of what was said before. ResourceExhausted if other
  /// jobs that share the device leave less.
  virtual absl::Status reserve(int64_t /*bytes*/) { return absl::OkStatus(); }
  /// The same for a moment, until something else is reserved: other jobs may want the like, so it
  /// waits a while for them, whoever they are.
  virtual absl::Status reserve_briefly(int64_t /*bytes*/) { return absl::OkStatus(); }
  /// Groups in which devices pass on what is in their memory. Belongs to the device; the first call
  /// may load a library. Unavailable in one line on a device that has none.
  virtual absl::StatusOr<DeviceGroups*> groups();
  /// Zeros for a device that does not count.
  virtual DeviceMemory memory() const { return {}; }
  /// Does the work, and returns its status when it has ended on the device; what the work holds is
  /// let go by then. One piece runs at a time: other threads wait for their turn.
  virtual absl::Status run(Work work) = 0;
  /// Changes the emulated speed, > 0, for the work that starts from now on; what runs keeps its
  /// own. Nothing happens on a device that is not emulated.
  virtual void set_speed(double /*speed*/) {}
};

/// Times for a device that only sleeps, at speed 1.0, for work of share 1: one transformer block
/// and a whole micro-batch.
struct SleepProfile {
  double forward_us = 0;
  double backward_us = 0;  // An I and a W take half of it each.
  double update_us = 0;
};

/// A host device: the thread that calls `run`, and `threads - 1` helpers for its loops and
/// products.
std::unique_ptr<Device> make_host_device(int32_t threads);
/// Does the work of `inner`, then waits until it has taken 1 / speed of the time it computed. With
/// one thread that is the processor time of the thread, so that what other processes take from the
/// machine is not counted as slowness of the device. At speed 1, and above, which it cannot reach,
/// the work runs as on `inner` and no clock is read: a device that may be slowed later costs
/// nothing until then. Work of kWarmUp runs as on `inner`, too. speed > 0.
///
/// On top of that a piece of work ends when `plans::end_of_work` says: its sleep is spent behind
/// it, which nobody can tell from one before it, as its output leaves when it ends. The times of an
/// H6 count from the first piece of a step.
std::unique_ptr<Device> make_slowed_device(std::unique_ptr<Device> inner, double speed,
                                           plans::Scenario scenario = {});
/// Sleeps for `sleep_us` instead of doing F, B and update work, and does no warm-up; the scenario
/// as above.
std::unique_ptr<Device> make_sleep_device(const SleepProfile& profile, double speed = 1.0,
                                          plans::Scenario scenario = {});
/// What `device` copies from and to fastest, or other host memory where it has no more of that.
/// Ends the process if there is none at all.
Buffer allocate_visible(Device& device, int64_t bytes);

/// How long a device that only sleeps does so for `share` of a work of this kind, neither kWarmUp
/// nor kOther, at `speed` > 0.
double sleep_us(const SleepProfile& profile, WorkKind kind, double share, double speed);

}  // namespace skein::gpu
