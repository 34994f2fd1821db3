#pragma once

#include "actors/coordinator/run_observer.hpp"

namespace skein::cli {

/// Tells two observers everything, one after the other.
class TwoObservers final : public actors::RunObserver {
 public:
  /// Both outlive this.
  TwoObservers(actors::RunObserver& first, actors::RunObserver& second)
      : first_(first), second_(second) {}

  void on_plan(const plans::Plan& plan, double predicted_step_us) override {
    first_.on_plan(plan, predicted_step_us);
    second_.on_plan(plan, predicted_step_us);
  }
  void on_profiles(const plans::ReportProfiles& report) override {
    first_.on_profiles(report);
    second_.on_profiles(report);
  }
  void on_step(const actors::StepReport& report) override {
    first_.on_step(report);
    second_.on_step(report);
  }
  void on_validation(const actors::ValidationReport& report) override {
    first_.on_validation(report);
    second_.on_validation(report);
  }
  void on_checkpoint(const actors::CheckpointReport& report) override {
    first_.on_checkpoint(report);
    second_.on_checkpoint(report);
  }
  void on_timings(const actors::TimingsReport& report) override {
    first_.on_timings(report);
    second_.on_timings(report);
  }
  void on_event(const actors::EventReport& report) override {
    first_.on_event(report);
    second_.on_event(report);
  }

 private:
  actors::RunObserver& first_;
  actors::RunObserver& second_;
};

}  // namespace skein::cli
