#pragma once

#include <array>
#include <string>

#include "planner_cells.hpp"
#include "plans/planner/planner.hpp"

namespace skein::bench {

/// DAPPLE's headline: the plans of PipeDream's planner take up to 3.23 times as long as its own
/// [R, abstract]. Here in the cells of one kind of clusters, and once more in forms that are
/// weaker, to see which of them makes how much of it.
class DappleClaim {
 public:
  /// `request`: of the strongest form.
  void add(const std::string& cell, const plans::PlanRequest& request);
  void print() const;

 private:
  struct Form {
    const char* name;
    bool one_number_of_rows;  // The profile's; else the best one.
    bool reduces_in_buckets;
    Gains gains = {};
    std::string largest_cell = {};
  };
  std::array<Form, 4> forms_ = {{{"as above", false, true},
                                 {"profile's rows", true, true},
                                 {"no buckets", false, false},
                                 {"neither", true, false}}};
};

}  // namespace skein::bench
