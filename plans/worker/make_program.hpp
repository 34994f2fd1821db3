#pragma once

#include <memory>

#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// The program of the plan's training mode. The only place that knows which program belongs to
/// which mode.
std::unique_ptr<WorkerProgram> make_program(const Plan& plan, ProgramOptions options);

}  // namespace skein::plans
