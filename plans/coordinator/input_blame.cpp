#include "plans/coordinator/input_blame.hpp"

#include "plans/base/bad_input.hpp"

namespace skein::plans {

void InputBlame::on_commit() {
  why_ = absl::OkStatus();
  participant_ = {};
}

bool InputBlame::accuse(const absl::Status& why, const Accuser& accuser, const Run& run) {
  if (!is_bad_input(why)) return false;
  // Those who are away for a moment may have read it well; and so did those of an earlier plan, if
  // one who has come no further than they is all there is.
  const bool knows_best = run.has_committed ? accuser.has_trained
                          : has_started_    ? accuser.has_started
                                            : accuser.takes_part || !run.has_past;
  const bool is_second = is_of_participant() && participant_ != accuser.worker;
  const bool is_agreed = (accuser.takes_part && is_second) || (run.is_deserted && knows_best);
  why_ = why;
  if (accuser.takes_part && knows_best && !is_of_participant()) participant_ = accuser.worker;
  return is_agreed;
}

}  // namespace skein::plans
