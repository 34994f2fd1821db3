#include "plans/modes/mode_list.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/modes/local_updates.hpp"
#include "plans/modes/synchronous_steps.hpp"
#include "plans/modes/token_steps.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/tokens/token_plan.hpp"
#include "plans/worker/async_program.hpp"
#include "plans/worker/local_program.hpp"
#include "plans/worker/step_program.hpp"
#include "plans/worker/token_program.hpp"

namespace skein::plans {

const ModeList& training_modes() {
  static const ModeList all = {
      {kSynchronousMode,
       [](const JobSpec& job) { return !begins_in_pipelines(job) && !trains_by_tokens(job); },
       replan,
       [](const JobSpec& job, const Plan& plan) -> std::unique_ptr<TrainingMode> {
         return std::make_unique<SynchronousSteps>(job, plan);
       },
       [](ProgramOptions options) -> std::unique_ptr<WorkerProgram> {
         return std::make_unique<StepProgram>(options);
       }},
      {kTokenMode, [](const JobSpec& job) { return trains_by_tokens(job); }, replan_tokens,
       [](const JobSpec& job, const Plan& plan) -> std::unique_ptr<TrainingMode> {
         return std::make_unique<TokenSteps>(job, plan);
       },
       [](ProgramOptions options) -> std::unique_ptr<WorkerProgram> {
         return std::make_unique<TokenProgram>(options);
       },
       true, false, nullptr, quick_replan_tokens},
      {kLocalMode, [](const JobSpec& job) { return begins_in_pipelines(job); },
       replan_pipeline_replicas,
       [](const JobSpec& job, const Plan& plan) -> std::unique_ptr<TrainingMode> {
         return std::make_unique<LocalUpdates>(job, plan, make_policy(job, pipeline_layout(plan)));
       },
       [](ProgramOptions options) -> std::unique_ptr<WorkerProgram> {
         if (options.passes_in_flight > 1) {
           return std::make_unique<AsyncProgram>(std::move(options));
         }
         return std::make_unique<LocalProgram>(std::move(options));
       },
       false, true,
       [](const JobSpec& job) { return static_cast<int32_t>(job.sync.claims_in_flight); },
       quick_replan_pipeline_replicas},
  };
  return all;
}

absl::Status check_mode(const ModeList& modes, const std::string& name) {
  std::vector<std::string> names;
  for (const ModeEntry& each : modes) names.push_back(absl::StrCat("\"", each.name, "\""));
  if (std::find(names.begin(), names.end(), absl::StrCat("\"", name, "\"")) != names.end())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is no training mode \"", name,
                                                 "\"; one of ", absl::StrJoin(names, ", "),
                                                 " is expected"));
}

const ModeEntry& find_mode(const ModeList& modes, const std::string& name) {
  const auto found = std::find_if(modes.begin(), modes.end(),
                                  [&](const ModeEntry& each) { return each.name == name; });
  SKEIN_CHECK(found != modes.end()) << "there is no training mode \"" << name << "\"";
  return *found;
}

const ModeEntry& first_mode(const ModeList& modes, const JobSpec& job) {
  const auto found = std::find_if(modes.begin(), modes.end(),
                                  [&](const ModeEntry& each) { return each.begins(job); });
  SKEIN_CHECK(found != modes.end()) << "no training mode takes the job";
  return *found;
}

}  // namespace skein::plans
