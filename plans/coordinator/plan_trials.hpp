#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/planner/planner.hpp"

namespace skein::plans {

bool is_same_but_for_generation(Plan a, const Plan& b);

/// Tries plans that promise much the same: each is in force for some steps, which are measured, and
/// then the fastest one stays. Fela's warm-up (Geng et al., ICDE'20; from memory). A state machine
/// without clock or I/O.
class PlanTrials {
 public:
  /// `steps`: of each plan, behind a first one that does not count; 0: nothing is tried.
  explicit PlanTrials(int64_t steps) : steps_(steps) {}

  /// The plan is the next one, and its rivals are to be tried behind it.
  void on_chosen(const PlannedPipeline& chosen);
  /// A plan is in force. If it is not the one that is to be tried, nothing is any more; but if it
  /// was made in a hurry, those that the planner finds for these workers are due to be tried.
  void begin_generation(const Plan& plan, bool was_urgent);
  /// The planner was asked for the first time since then, and has found this: it has rivals, and
  /// they are to be tried whatever it promises, behind the plan in force if that is no more. True
  /// once.
  bool take_due(const PlannedPipeline& chosen);

  struct Outcome {
    std::optional<PlannedPipeline> next;  // To change to; none: the plan in force stays.
    std::string text;                     // One line for people; empty: it is not time yet.
    bool is_end = false;                  // All have been tried.
  };
  /// A step was committed that took so long.
  Outcome on_commit(double step_us);

 private:
  struct Candidate {
    PlannedPipeline pipeline;
    double step_us = 0;  // Measured: the median. 0: not yet.
  };
  Outcome end();
  bool is_tried(const Plan& plan) const;

  int64_t steps_;
  bool is_due_ = false;                // The plan in force, made in a hurry, was not compared.
  std::vector<Candidate> candidates_;  // Empty: none are to be tried.
  size_t current_ = 0;                 // Which of them is in force, or about to be.
  std::vector<double> measured_us_;    // Its steps.
};

}  // namespace skein::plans
