#include "plans/worker/make_program.hpp"

#include <utility>

#include "plans/worker/local_program.hpp"
#include "plans/worker/step_program.hpp"

namespace skein::plans {

std::unique_ptr<WorkerProgram> make_program(const Plan& plan, ProgramOptions options) {
  if (plan.in_columns) return std::make_unique<LocalProgram>(std::move(options));
  return std::make_unique<StepProgram>(std::move(options));
}

}  // namespace skein::plans
