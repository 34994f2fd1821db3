#include "actors/device_gradient_group.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

std::vector<char> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

class DeviceGradientGroup final : public net::GradientGroup {
 public:
  DeviceGradientGroup(DeviceGradientGroupOptions options,
                      std::shared_ptr<net::RendezvousBoard> board,
                      std::unique_ptr<net::GradientGroup> host)
      : options_(std::move(options)), board_(std::move(board)), host_(std::move(host)) {}

  ~DeviceGradientGroup() override { leave(); }

  absl::Status connect() override {
    options_.keeper->end_given_up();
    const PathEntry own = options_.round->tell();
    // Whatever the others have, and nobody asks a processor why: no need to wait for their words.
    if (options_.backend != "nccl" && !own.is_gpu) return host_->connect();
    SKEIN_ASSIGN_OR_RETURN(FormationRound::Outcome outcome, options_.round->decide(options_.id));
    if (!outcome.path.reason.empty()) {
      options_.say(absl::StrCat("gradients of ", options_.group.name,
                                " go by way of the hosts: ", outcome.path.reason));
    }
    if (!outcome.path.on_device) return host_->connect();
    SKEIN_RETURN_IF_ERROR(form(std::move(outcome)));
    std::lock_guard lock(mutex_);
    host_.reset();
    return absl::OkStatus();
  }

  bool is_on_device() const override { return on_device_; }

  absl::Status all_reduce_sum(std::span<float> values) override {
    if (!on_device_) return host_->all_reduce_sum(values);
    if (!begin_call()) return aborted();
    // Complete already: the work that made them has ended.
    absl::Status status = members_->all_reduce_sum(
        values.data(), static_cast<int64_t>(values.size()), gpu::DeviceGroup::Start::kNow);
    if (status.ok()) status = members_->wait();
    end_operation(status.ok());
    return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
  }

  void abort() override {
    options_.round->abort();
    board_->cancel_prefix(options_.group.name + "/");
    std::lock_guard lock(mutex_);
    is_aborted_ = true;
    if (host_) host_->abort();
    if (is_calling_) return signal_->raise();
    leave();  // Whole, for the next plan.
  }

 private:
  void leave() {
    if (members_) options_.keeper->release(number_);
    members_.reset();
  }

  /// Not bad input, whatever it is called: that would end the run.
  static absl::Status trouble(const absl::Status& why) {
    return absl::UnavailableError(why.message());
  }

  std::string key(const std::string& of) const {
    return absl::StrCat(options_.group.name, "/", of);
  }

  absl::Status form(FormationRound::Outcome outcome) {
    switch (outcome.formation.kind) {
      case plans::FormationKind::kCached:
        adopt(outcome.formation.parent, std::move(outcome.from));
        return absl::OkStatus();
      case plans::FormationKind::kNewId:
        return form_anew(std::move(outcome.members));
      case plans::FormationKind::kShrink:
      case plans::FormationKind::kSplit:
        break;
    }
    return form_from(std::move(outcome));
  }

  absl::Status form_from(FormationRound::Outcome outcome) {
    if (!begin_call()) return aborted();
    auto formed = make_from(outcome);
    outcome.from.reset();  // Every member has what it needs of it, or it is broken.
    if (!end_call()) return aborted();
    if (!formed.ok()) return trouble(formed.status());
    const bool is_split = outcome.formation.kind == plans::FormationKind::kSplit;
    options_.say(absl::StrCat("the GPUs of ", options_.group.name, " have ",
                              is_split ? "split" : "shrunk", " their group of ",
                              outcome.parent.members.size(), " members to one of ",
                              outcome.members.size()));
    return keep(std::move(outcome.members), *std::move(formed));
  }

  absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> make_from(
      const FormationRound::Outcome& outcome) {
    gpu::DeviceGroup& from = *outcome.from;
    if (outcome.formation.kind == plans::FormationKind::kSplit) {
      return from.split(static_cast<int32_t>(options_.id.value), device_options());
    }
    std::vector<int32_t> left;
    for (size_t rank = 0; rank < outcome.parent.members.size(); ++rank) {
      const bool stays = std::binary_search(outcome.members.begin(), outcome.members.end(),
                                            outcome.parent.members[rank]);
      if (!stays) left.push_back(static_cast<int32_t>(rank));
    }
    if (outcome.formation.revokes && !outcome.parent.is_revoked) {
      SKEIN_RETURN_IF_ERROR(from.revoke());
    }
    return from.shrink(left, gpu::DeviceGroup::Shrink::kHealthy, device_options());
  }

  absl::Status form_anew(std::vector<plans::WorkerId> members) {
    const auto rank = std::find(members.begin(), members.end(), options_.self) - members.begin();
    SKEIN_ASSIGN_OR_RETURN(gpu::DeviceGroups * groups, options_.device->groups());
    if (rank == 0) {
      const absl::StatusOr<std::string> made = groups->make_id();
      if (!made.ok()) {
        options_.keeper->on_formed(made.status());
        return made.status();
      }
      board_->put(key("id"), to_bytes(*made));
    }
    SKEIN_ASSIGN_OR_RETURN(const std::vector<char> id,
                           board_->wait(key("id"), options_.group.appear_timeout_seconds));
    if (!begin_call()) return aborted();
    absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> formed =
        groups->form(std::string(id.begin(), id.end()), static_cast<int32_t>(rank),
                     static_cast<int32_t>(members.size()), device_options());
    if (!end_call()) return aborted();
    options_.keeper->on_formed(formed.status());
    if (!formed.ok()) return trouble(formed.status());
    return keep(std::move(members), *std::move(formed));
  }

  gpu::DeviceGroup::Options device_options() const {
    gpu::DeviceGroup::Options options;
    options.name = options_.group.name;
    options.form_timeout_seconds = options_.group.connect_timeout_seconds;
    options.operation_timeout_seconds = options_.group.timeout_seconds;
    // Revoked at once, see `end_operation`.
    if (can_revoke()) options.on_failure = gpu::DeviceGroup::OnFailure::kKeep;
    options.abort = signal_;
    return options;
  }

  bool can_revoke() const {
    const absl::StatusOr<gpu::DeviceGroups*> groups = options_.device->groups();
    return groups.ok() && (*groups)->info().can_revoke;
  }

  absl::Status keep(std::vector<plans::WorkerId> members,
                    std::unique_ptr<gpu::DeviceGroup> formed) {
    if (formed == nullptr) {
      return absl::UnavailableError(absl::StrCat(options_.group.name, " has no group here"));
    }
    std::shared_ptr<gpu::DeviceGroup> shared = std::move(formed);
    options_.keeper->add({options_.number, std::move(members), 0}, shared, options_.device);
    adopt(options_.number, std::move(shared));
    return absl::OkStatus();
  }

  void adopt(uint64_t number, std::shared_ptr<gpu::DeviceGroup> members) {
    std::lock_guard lock(mutex_);
    on_device_ = true;
    number_ = number;
    members_ = std::move(members);
    signal_ = members_->abort_signal();
    if (is_aborted_) leave();
  }

  /// False once the group is aborted. An abort from now on until `end_call` ends what runs.
  bool begin_call() {
    std::lock_guard lock(mutex_);
    is_calling_ = !is_aborted_;
    return is_calling_;
  }
  /// False if it was aborted meanwhile.
  bool end_call() {
    std::lock_guard lock(mutex_);
    is_calling_ = false;
    return !is_aborted_;
  }

  /// What still runs in the group must end before anybody touches the values again.
  void end_operation(bool is_done) {
    {
      std::lock_guard lock(mutex_);
      if (is_done && !is_aborted_) {
        is_calling_ = false;
        return;
      }
    }
    if (can_revoke() && members_->revoke().ok()) {
      options_.keeper->release_revoked(number_);
    } else {
      options_.keeper->end(number_);
    }
    members_.reset();  // Broken: ends here, which takes long.
    std::lock_guard lock(mutex_);
    is_calling_ = false;
    is_aborted_ = true;
  }

  absl::Status aborted() const {
    return absl::UnavailableError(absl::StrCat(options_.group.name, " was aborted"));
  }

  const DeviceGradientGroupOptions options_;
  const std::shared_ptr<net::RendezvousBoard> board_;
  std::mutex mutex_;
  std::unique_ptr<net::GradientGroup> host_;  // Null once the devices have a group.
  bool on_device_ = false;
  uint64_t number_ = 0;
  std::shared_ptr<gpu::DeviceGroup> members_;
  std::shared_ptr<gpu::AbortSignal> signal_ = std::make_shared<gpu::AbortSignal>();
  bool is_calling_ = false;
  bool is_aborted_ = false;
};

}  // namespace

std::unique_ptr<net::GradientGroup> make_device_gradient_group(
    DeviceGradientGroupOptions options, std::shared_ptr<net::RendezvousBoard> board,
    std::unique_ptr<net::GradientGroup> host) {
  return std::make_unique<DeviceGradientGroup>(std::move(options), std::move(board),
                                               std::move(host));
}

}  // namespace skein::actors
