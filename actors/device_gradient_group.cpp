#include "actors/device_gradient_group.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/gradient_path.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/sync/group_formation.hpp"

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
    const PathEntry own = own_entry();
    board_->put(key(absl::StrCat("device-", options_.group.rank)), to_bytes(to_text(own)));
    // Whatever the others have, and nobody asks a processor why: no need to wait for their words.
    if (options_.backend != "nccl" && !own.is_gpu) return host_->connect();
    SKEIN_ASSIGN_OR_RETURN(const std::vector<PathEntry> entries, hear_entries());
    SKEIN_ASSIGN_OR_RETURN(const GradientPath path,
                           choose_gradient_path(options_.backend, entries));
    if (!path.reason.empty()) {
      options_.say(absl::StrCat("gradients of ", options_.group.name,
                                " go by way of the hosts: ", path.reason));
    }
    if (!path.on_device) return host_->connect();
    SKEIN_RETURN_IF_ERROR(form(entries));
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
    end_call();
    return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
  }

  void abort() override {
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

  PathEntry own_entry() const {
    PathEntry entry;
    entry.is_gpu = !options_.device->info().is_host_memory;
    if (options_.backend == "gloo") return entry;
    if (options_.group.reducer.kind != plans::ReducerKind::kSum) {
      entry.detail = "sync.reducer is none of NCCL's";
      return entry;
    }
    const absl::StatusOr<gpu::DeviceGroups*> groups = options_.device->groups();
    if (!groups.ok()) {
      entry.detail = std::string(groups.status().message());
      return entry;
    }
    entry.detail = options_.keeper->trouble();
    if (!entry.detail.empty()) return entry;
    const gpu::DeviceGroups::Info& info = (*groups)->info();
    entry.library = info.library;
    entry.detail = info.place;
    entry.offer.groups = options_.keeper->offer();
    return entry;
  }

  absl::StatusOr<std::vector<PathEntry>> hear_entries() {
    std::vector<PathEntry> entries;
    for (uint32_t rank = 0; rank < options_.group.rank_count; ++rank) {
      SKEIN_ASSIGN_OR_RETURN(
          const std::vector<char> bytes,
          board_->wait(key(absl::StrCat("device-", rank)), options_.group.appear_timeout_seconds));
      absl::StatusOr<PathEntry> entry = parse_path_entry(std::string(bytes.begin(), bytes.end()));
      if (!entry.ok()) return trouble(entry.status());
      entries.push_back(*std::move(entry));
    }
    return entries;
  }

  absl::Status form(const std::vector<PathEntry>& entries) {
    std::vector<plans::WorkerId> members = options_.members;
    std::sort(members.begin(), members.end());
    std::map<plans::WorkerId, plans::GroupOffer> offers;
    for (size_t rank = 0; rank < entries.size(); ++rank) {
      offers[options_.members[rank]] = entries[rank].offer;
    }
    const plans::Formation formation = plans::choose_formations({members}, offers).front();
    if (formation.kind == plans::FormationKind::kCached) {
      std::shared_ptr<gpu::DeviceGroup> kept = options_.keeper->use(formation.parent);
      if (kept == nullptr) {
        return absl::UnavailableError(
            absl::StrCat("group ", formation.parent, ", which was offered, is gone"));
      }
      adopt(formation.parent, std::move(kept));
      return absl::OkStatus();
    }
    return form_anew(std::move(members));
  }

  absl::Status form_anew(std::vector<plans::WorkerId> members) {
    const plans::WorkerId self = options_.members[options_.group.rank];
    const auto rank = std::find(members.begin(), members.end(), self) - members.begin();
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
    gpu::DeviceGroup::Options options;
    options.name = options_.group.name;
    options.form_timeout_seconds = options_.group.connect_timeout_seconds;
    options.operation_timeout_seconds = options_.group.timeout_seconds;
    options.abort = signal_;
    if (!begin_call()) return aborted();
    absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> formed =
        groups->form(std::string(id.begin(), id.end()), static_cast<int32_t>(rank),
                     static_cast<int32_t>(members.size()), options);
    if (!end_call()) return aborted();
    options_.keeper->on_formed(formed.status());
    if (!formed.ok()) return trouble(formed.status());
    std::shared_ptr<gpu::DeviceGroup> shared = *std::move(formed);
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
