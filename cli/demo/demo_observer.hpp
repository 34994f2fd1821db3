#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/coordinator/run_observer.hpp"
#include "cli/demo/demo_screen.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::cli {

/// Turns what is heard of a run into what the demo shows. Thread-safe.
class DemoObserver final : public actors::RunObserver {
 public:
  /// Counts time from now. `seconds_planned` as in `DemoView`.
  DemoObserver(plans::JobSpec job, double seconds_planned);

  void on_plan(const plans::Plan& plan, double predicted_step_us) override;
  void on_profiles(const plans::ReportProfiles& report) override;
  void on_step(const actors::StepReport& report) override;
  void on_validation(const actors::ValidationReport& report) override;
  void on_checkpoint(const actors::CheckpointReport& report) override;
  void on_timings(const actors::TimingsReport& report) override;
  void on_event(const actors::EventReport& report) override;

  /// The demo is about to kill a worker, from when on the pause is counted.
  void on_kill(plans::WorkerId worker);
  /// Something that the demo itself says.
  void say(const std::string& text);

  DemoView view() const;

 private:
  double elapsed() const;
  void add_event(std::string text, bool is_trouble = false, bool is_good = false);
  DemoWorker& worker(uint32_t number);
  void set_speed(uint32_t number, double speed);
  /// Predicted, of an even split of the layers over the same workers, over that of `plan`.
  double gain_of(const plans::Plan& plan) const;
  /// False if the event is none of these.
  bool on_worker_event(const actors::EventReport& report);
  bool on_run_event(const actors::EventReport& report);
  void on_first_step_of_plan(const actors::StepReport& report);

  const plans::JobSpec job_;
  const std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;  // Guards what follows.
  DemoView view_;
  std::optional<plans::Profile> profile_;
  plans::ClusterSpec cluster_;  // Device n - 1 is worker n, be it there or not.
  size_t replicas_ = 0;
  std::vector<actors::TimingsReport> timings_;  // One step's, as far as they have come.
  uint64_t steps_lost_ = 0;
  std::optional<double> pause_began_;
  std::string pause_cause_;  // Empty: the next plan.
  std::string newcomers_;    // Names of those whom the next plan has for the first time.
  double rate_seconds_ = 0;
  double rate_tokens_ = 0;
};

}  // namespace skein::cli
