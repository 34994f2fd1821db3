#include "dapple_claim.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace skein::bench {
namespace {

constexpr double kClaimed = 3.23;  // [R, abstract]

}  // namespace

void DappleClaim::add(const std::string& cell, const plans::PlanRequest& request) {
  for (Form& form : forms_) {
    plans::PlanRequest asked = request;
    if (form.one_number_of_rows) asked.microbatch_rows.resize(1);
    asked.simulation.bucketed_reduction = form.reduces_in_buckets;
    const auto step_us = [&](const char* planner) {
      return plan_with(planner_named(planner), asked).step_us;
    };
    const double dapple_us = std::min(step_us("dapple"), step_us("dapple_released"));
    // Without a plan of DAPPLE's the ratio is 0, which has no logarithm.
    if (!std::isfinite(dapple_us)) continue;
    const double before = form.gains.largest;
    form.gains.add(step_us("pipedream") / dapple_us);
    if (form.gains.largest > before) form.largest_cell = cell;
  }
}

void DappleClaim::print() const {
  std::printf(
      "Step time of PipeDream's plans / those of the better of DAPPLE's: geometric mean, largest, "
      "of cells\n");
  for (const Form& form : forms_) {
    print_gains(form.name, form.gains);
    std::printf("    largest in %s\n", form.largest_cell.c_str());
  }
  std::printf(
      "  DAPPLE states up to %.2fx [R, abstract], on which model and cluster we do not know: %s\n"
      "  What differs here: PipeDream's planner is given the best of all numbers of rows, and its "
      "gradients go in\n  buckets beside the backward (both are taken away above); its replicas "
      "split each micro-batch, where its own\n  runtime lets them take turns; the layers are "
      "written by hand from totals; links and latencies are guesses\n",
      kClaimed, forms_[0].gains.largest >= kClaimed ? "reached" : "not reached");
}

}  // namespace skein::bench
