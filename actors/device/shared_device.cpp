#include "actors/device/shared_device.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

constexpr int kMegabyteBits = 20;

class JobShare final : public DeviceShare {
 public:
  JobShare(std::shared_ptr<DeviceGate> gate, std::shared_ptr<SharedMemory> memory,
           const plans::DeviceJob& job, bool takes_turns)
      : gate_(std::move(gate)),
        memory_(std::move(memory)),
        job_(job.number),
        takes_turns_(takes_turns) {
    gate_->add(job);
    memory_->set_priority(job_, job.priority);
  }
  ~JobShare() override {
    gate_->remove(job_);
    memory_->forget(job_);
  }
  JobShare(const JobShare&) = delete;
  JobShare& operator=(const JobShare&) = delete;

  void enter(uint64_t position) override {
    if (takes_turns_) gate_->enter(job_, position);
  }
  void leave() override { gate_->leave(job_); }
  void change(const plans::SharingSpec& sharing) override {
    takes_turns_ = sharing.takes_turns;
    gate_->change({job_, sharing.priority, sharing.weight});
    memory_->set_priority(job_, sharing.priority);
  }
  void begin_passes() override { gate_->begin_passes(job_); }
  void end_passes() override { gate_->end_passes(job_); }
  bool is_waiting() const override { return gate_->is_waiting(job_); }
  plans::TurnReport report() const override {
    return takes_turns_ ? gate_->report(job_) : plans::TurnReport();
  }

 private:
  const std::shared_ptr<DeviceGate> gate_;
  const std::shared_ptr<SharedMemory> memory_;
  const uint64_t job_;
  std::atomic<bool> takes_turns_;
};

/// A job's view of the device.
class JobDevice final : public gpu::Device {
 public:
  struct Parts {
    std::shared_ptr<gpu::Device> inner;
    std::shared_ptr<DeviceGate> gate;
    std::shared_ptr<SharedMemory> memory;
    uint64_t job = 0;
    int64_t limit = 0;  // What all jobs may have; 0: as much as there is.
  };
  explicit JobDevice(Parts parts) : parts_(std::move(parts)) {}

  const gpu::DeviceInfo& info() const override { return parts_.inner->info(); }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    SKEIN_RETURN_IF_ERROR(parts_.memory->take(parts_.job, bytes, parts_.limit));
    absl::StatusOr<gpu::Buffer> made = parts_.inner->allocate(bytes);
    if (!made.ok()) {
      parts_.memory->give_back(parts_.job, bytes);
      return made.status();
    }
    auto inner = std::make_shared<gpu::Buffer>(*std::move(made));
    return gpu::Buffer(inner->data(), inner->bytes(),
                       [inner, bytes, job = parts_.job, memory = parts_.memory](void*) mutable {
                         inner.reset();
                         memory->give_back(job, bytes);
                       });
  }
  absl::Status reserve(int64_t bytes) override {
    return parts_.memory->reserve(parts_.job, bytes, parts_.limit);
  }
  absl::Status reserve_briefly(int64_t bytes) override {
    return parts_.memory->reserve_briefly(parts_.job, bytes, parts_.limit);
  }
  absl::StatusOr<gpu::Buffer> allocate_host_visible(int64_t bytes) override {
    return parts_.inner->allocate_host_visible(bytes);
  }
  absl::Status upload(std::span<const float> from, float* to) override {
    return parts_.inner->upload(from, to);
  }
  absl::Status download(const float* from, std::span<float> to) override {
    return parts_.inner->download(from, to);
  }
  /// Groups of two jobs on one GPU would need one order of all their operations on all devices.
  absl::StatusOr<gpu::DeviceGroups*> groups() override {
    return absl::UnavailableError(
        "several jobs share the device: their hosts add up gradients and pass on activations");
  }
  gpu::DeviceMemory memory() const override {
    gpu::DeviceMemory memory = parts_.inner->memory();
    memory.in_use = parts_.memory->in_use(parts_.job);
    memory.in_use_max = std::max(memory.in_use_max, memory.in_use);
    // None left is not as much as there is.
    const int64_t left = parts_.limit - parts_.memory->of_others(parts_.job);
    if (parts_.limit > 0) memory.limit = std::max<int64_t>(1, left);
    return memory;
  }
  absl::Status run(gpu::Work work) override {
    const DeviceGate::Pass pass = parts_.gate->begin(parts_.job, work.need);
    work.given = pass.since;
    if (pass.has_waited && work.on_begin) work.on_begin();
    absl::Status status = parts_.inner->run(std::move(work));
    parts_.gate->end(parts_.job, pass);
    return status;
  }
  void set_speed(double speed) override { parts_.inner->set_speed(speed); }

 private:
  const Parts parts_;
};

std::string to_text(const std::string& value) { return absl::StrCat("\"", value, "\""); }
std::string to_text(double value) { return absl::StrCat(value); }
std::string to_text(int64_t value) { return absl::StrCat(value); }

template <class Value>
absl::Status expect_same(const char* key, const Value& has, const Value& wants) {
  if (has == wants) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "device.", key, " = ", to_text(wants), ", and the device that the job is to share has ",
      to_text(has), "; jobs on the same workers must agree on device.*"));
}

}  // namespace

uint64_t device_job_number(const std::string& run) {
  return plans::random_stream(run.data(), run.size());
}

absl::Status check_same_device(const plans::DeviceSpec& has, const plans::DeviceSpec& wants) {
  SKEIN_RETURN_IF_ERROR(expect_same("type", has.type, wants.type));
  SKEIN_RETURN_IF_ERROR(expect_same("threads", has.threads, wants.threads));
  if (has.speeds.empty()) {
    SKEIN_RETURN_IF_ERROR(expect_same("speed", has.speed, wants.speed));
  }
  SKEIN_RETURN_IF_ERROR(
      expect_same("speeds", absl::StrJoin(has.speeds, ","), absl::StrJoin(wants.speeds, ",")));
  SKEIN_RETURN_IF_ERROR(expect_same("scenario", has.scenario, wants.scenario));
  SKEIN_RETURN_IF_ERROR(expect_same("ordinal", has.ordinal, wants.ordinal));
  return expect_same("memory_limit_mb", has.memory_limit_mb, wants.memory_limit_mb);
}

absl::StatusOr<WorkerDevice> SharedDevice::join(const plans::JobSpec& job, const std::string& run,
                                                const Make& make) {
  std::lock_guard lock(mutex_);
  const plans::DeviceJob own{device_job_number(run), job.sharing.priority, job.sharing.weight};
  if (gate_->has(own.number)) {
    return absl::AlreadyExistsError(absl::StrCat("this worker serves run ", run, " already"));
  }
  if (gate_->is_empty()) spec_.reset();
  if (spec_) SKEIN_RETURN_IF_ERROR(check_same_device(*spec_, job.device));
  plans::DeviceSpec spec = job.device;
  // Its number in the first job says which of `speeds` is its own.
  if (spec_) spec.speed = spec_->speed;
  absl::StatusOr<std::shared_ptr<gpu::Device>> inner = make(spec);
  if (!inner.ok()) return inner.status();
  spec_ = spec;
  JobDevice::Parts parts;
  parts.inner = *std::move(inner);
  parts.gate = gate_;
  parts.memory = memory_;
  parts.job = own.number;
  parts.limit = job.device.memory_limit_mb << kMegabyteBits;
  return WorkerDevice{std::make_shared<JobDevice>(std::move(parts)),
                      std::make_shared<JobShare>(gate_, memory_, own, job.sharing.takes_turns)};
}

}  // namespace skein::actors
