#include "actors/collectives/device_gradient_group.hpp"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

class DeviceGradientGroup final : public net::GradientGroup {
 public:
  DeviceGradientGroup(DeviceGradientGroupOptions options,
                      std::shared_ptr<net::RendezvousStore> store,
                      std::unique_ptr<net::GradientGroup> host)
      : options_(std::move(options)),
        members_(options_.devices, std::move(store)),
        host_(std::move(host)) {}

  absl::Status connect() override {
    const DeviceMembersOptions& devices = options_.devices;
    devices.group_store->end_given_up();
    const PathEntry own = devices.round->tell();
    SKEIN_RETURN_IF_ERROR(devices.round->lead());
    // Whatever the others have, and nobody asks a processor why: no need to wait for words.
    if (options_.backend != "nccl" && !own.is_gpu) return host_->connect();
    SKEIN_ASSIGN_OR_RETURN(FormationRound::Outcome outcome, devices.round->decide(devices.id));
    const GradientPath& path = outcome.decision.path;
    if (!path.reason.empty()) {
      devices.say(
          absl::StrCat("gradients of ", devices.name, " go by way of the hosts: ", path.reason));
    }
    if (!path.on_device) return host_->connect();
    SKEIN_RETURN_IF_ERROR(members_.form(std::move(outcome)));
    std::lock_guard lock(mutex_);
    on_device_ = true;
    host_.reset();
    return absl::OkStatus();
  }

  bool is_on_device() const override { return on_device_; }

  absl::Status all_reduce_sum(std::span<float> values) override {
    if (!on_device_) return host_->all_reduce_sum(values);
    const absl::Status status = members_.run([&](gpu::DeviceGroup& group) {
      // Complete already: the work that made them has ended.
      return group.all_reduce_sum(values.data(), static_cast<int64_t>(values.size()),
                                  gpu::DeviceGroup::Start::kNow);
    });
    return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
  }

  void abort() override {
    options_.devices.round->abort();
    members_.abort();
    std::lock_guard lock(mutex_);
    if (host_) host_->abort();
  }

 private:
  const DeviceGradientGroupOptions options_;
  DeviceMembers members_;
  std::mutex mutex_;
  std::unique_ptr<net::GradientGroup> host_;  // Null once the devices have a group.
  bool on_device_ = false;
};

}  // namespace

std::unique_ptr<net::GradientGroup> make_device_gradient_group(
    DeviceGradientGroupOptions options, std::shared_ptr<net::RendezvousStore> store,
    std::unique_ptr<net::GradientGroup> host) {
  return std::make_unique<DeviceGradientGroup>(std::move(options), std::move(store),
                                               std::move(host));
}

}  // namespace skein::actors
