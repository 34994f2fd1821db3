#include "plans/coordinator_decisions.hpp"

#include <iterator>
#include <utility>

namespace skein::plans {

void append(CoordinatorDecisions& to, CoordinatorDecisions from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace skein::plans
