#include "cli/verbs/train.hpp"

#include <unistd.h>

#include "cli/run/exit_codes.hpp"

namespace skein::cli {

int train(const TrainOptions& options, Signals& signals) {
  auto run = TrainRun::start(options);
  if (!run.ok()) return report_error(run.status());
  if ((*run)->is_done()) return kExitDone;
  TrainRun::State state = TrainRun::State::kRuns;
  while (state == TrainRun::State::kRuns) state = (*run)->poll(signals);
  if (state == TrainRun::State::kEnded) return (*run)->finish(signals);
  (*run)->kill_workers();
  _exit(kExitKilled);
}

}  // namespace skein::cli
