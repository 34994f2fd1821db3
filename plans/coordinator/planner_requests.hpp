#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/planner_questions.hpp"

namespace skein::plans {

/// What the planner has been asked and has not answered. It thinks about one question at a time;
/// of each kind the newest one waits. So what is overtaken costs at most the rest of one thought.
/// A state machine without clock or I/O.
class PlannerRequests {
 public:
  /// Asks, or replaces an older question of the same kind, whose answer is not wanted any more.
  CoordinatorDecisions ask(PlannerQuestion question);
  /// A question of this kind (a type of `PlannerQuestion::What`) is asked, and its answer wanted.
  template <class Question>
  bool is_asked() const {
    return is_asked(PlannerQuestion{PlannerQuestion::What(Question{})}.what.index());
  }
  /// A new generation: nothing that was asked before is wanted.
  void forget_all();

  struct Answered {
    bool is_known = false;      // False: nobody asked, or it was answered already.
    bool is_wanted = false;     // False: it was overtaken.
    CoordinatorDecisions next;  // What the planner thinks about next.
  };
  Answered on_ready(uint64_t id);

  void check_invariants() const;

 private:
  using Shared = std::shared_ptr<const PlannerQuestion>;
  struct InFlight {
    uint64_t id = 0;
    size_t kind = 0;
    bool is_wanted = true;
  };
  bool is_asked(size_t kind) const;
  CoordinatorDecisions send(Shared question);

  // Invariants: questions wait only while one is in flight; ids ascend.
  uint64_t last_id_ = 0;
  std::optional<InFlight> in_flight_;
  std::map<size_t, Shared> waiting_;  // By kind.
};

}  // namespace skein::plans
