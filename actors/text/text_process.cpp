#include "actors/text/text_process.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/actor_system.hpp"
#include "actors/peer_listener.hpp"
#include "actors/printing/stderr_lines.hpp"
#include "actors/text/text_coordinator.hpp"
#include "actors/unguessable_bits.hpp"
#include "net/address.hpp"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"

namespace skein::actors {
namespace {

/// So long workers that are told to leave are waited for.
constexpr auto kFarewell = std::chrono::seconds(5);

class LocalText final : public TextProcess {
 public:
  explicit LocalText(TextOptions options)
      : options_(std::move(options)), system_config_(make_system_config()) {}

  ~LocalText() override {
    if (coordinator_) {
      caf::anon_send(coordinator_, EndAtom::value);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kFarewell, [this] { return have_left_; });
    }
    listener_.reset();  // No link's handler runs after the loop below it has gone.
    if (coordinator_) caf::anon_send_exit(coordinator_, caf::exit_reason::user_shutdown);
    if (system_) system_->await_all_actors_done();
    coordinator_ = nullptr;
    plane_.reset();
    loop_.reset();
    system_.reset();
  }

  absl::Status listen() {
    SKEIN_RETURN_IF_ERROR(
        net::check_listen_address(options_.listen_address, options_.insecure).status());
    SKEIN_ASSIGN_OR_RETURN(loop_, net::EventLoop::start());
    system_ = std::make_unique<caf::actor_system>(system_config_);
    net::DataPlane::Options plane;
    plane.listen_address = absl::StrCat(host(), ":0");
    plane.insecure = options_.insecure;
    plane.on_refused = [](const std::string& peer, const std::string& why) {
      print_error_line(absl::StrCat("skein: turned away a data connection of ", peer, ": ", why));
    };
    SKEIN_ASSIGN_OR_RETURN(plane_, net::DataPlane::start(*loop_, std::move(plane)));
    coordinator_ = system_->spawn(text_coordinator, coordinator_config());
    SKEIN_ASSIGN_OR_RETURN(listener_, listen_for_workers());
    address_ = absl::StrCat(host(), ":", listener_->port());
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  absl::Status wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_begun_ || ended_; });
    return ended_.value_or(absl::OkStatus());
  }

  int64_t length() const override { return length_; }
  void clear() override { length_ = 0; }

  absl::Status extend(std::span<const int32_t> tokens, std::span<float> logits) override {
    while (!tokens.empty()) {
      const size_t count = std::min(tokens.size(), static_cast<size_t>(plans::kTextStepMax));
      SKEIN_RETURN_IF_ERROR(make_step(tokens.first(count)));
      tokens = tokens.subspan(count);
    }
    std::copy(logits_.begin(), logits_.end(), logits.begin());
    return absl::OkStatus();
  }

 private:
  absl::Status make_step(std::span<const int32_t> tokens) {
    std::unique_lock lock(mutex_);
    has_logits_ = false;
    caf::anon_send(coordinator_, TextAddition{{tokens.begin(), tokens.end()}, length_});
    changed_.wait(lock, [this] { return has_logits_ || ended_; });
    if (ended_) {
      length_ = 0;
      return *ended_;
    }
    length_ += static_cast<int64_t>(tokens.size());
    return absl::OkStatus();
  }

  std::string host() const {
    return options_.listen_address.substr(0, options_.listen_address.rfind(':'));
  }

  TextCoordinatorConfig coordinator_config() {
    TextCoordinatorConfig config;
    config.session.run = absl::StrCat("text-", absl::Hex(unguessable_bits(), absl::kZeroPad16));
    config.session.request = options_.request;
    config.session.workers = options_.worker_count;
    config.session.layers = plans::layer_count(options_.job.model);
    config.session.silence_us = static_cast<uint64_t>(
        options_.job.elastic.heartbeat_timeout_seconds * plans::kMicrosecondsPerSecond);
    config.session.secret = unguessable_bits();
    config.joined.job = "text";
    config.joined.job_config = options_.job_config;
    config.joined.run = config.session.run;
    config.joined.config_digest = options_.config_digest;
    config.joined.data_address = plane_->address();
    config.vocab_size = options_.job.model.vocab_size;
    config.plane = plane_;
    config.on_begin = [this] { set([this] { has_begun_ = true; }); };
    config.on_logits = [this](std::span<const float> logits) {
      set([&] {
        logits_.assign(logits.begin(), logits.end());
        has_logits_ = true;
      });
    };
    config.on_end = [this](absl::Status why) { set([&] { ended_ = std::move(why); }); };
    config.on_left = [this] { set([this] { have_left_ = true; }); };
    return config;
  }

  template <class Change>
  void set(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  absl::StatusOr<std::unique_ptr<net::ControlListener>> listen_for_workers() {
    return listen_for_peers(*loop_, {options_.listen_address, options_.insecure}, coordinator_);
  }

  TextOptions options_;
  caf::actor_system_config system_config_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<net::DataPlane> plane_;
  TextCoordinator coordinator_;
  std::unique_ptr<net::ControlListener> listener_;
  std::string address_;
  int64_t length_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_begun_ = false;
  bool has_logits_ = false;
  bool have_left_ = false;
  std::optional<absl::Status> ended_;
  std::vector<float> logits_;  // Read by the user's thread when `has_logits_`.
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextProcess>> TextProcess::start(TextOptions options) {
  auto process = std::make_unique<LocalText>(std::move(options));
  SKEIN_RETURN_IF_ERROR(process->listen());
  return std::unique_ptr<TextProcess>(std::move(process));
}

}  // namespace skein::actors
