// One training step, from the first forward to the update: two workers with a stage each, and the
// coordinator. The decisions are the product's own; what carries them out elsewhere (devices,
// links, the journal) is replaced by one queue and a line of output for each thing that happens.

#include <cstdio>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/coordination.hpp"
#include "plans/worker/step_program.hpp"

namespace skein::plans {
namespace {

JobSpec small_job() {
  JobSpec job;
  job.model.layers = 4;
  job.training.steps = 1;
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 4;  // Two micro-batches of two rows.
  job.parallelism.pipeline_parallel_degree = 2;
  job.validation = {.interval = 0, .batches = 0};
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  return job;
}

void say(WorkerId worker, const std::string& what) {
  std::printf("w%u  %s\n", worker.value, what.c_str());
}
void say(const std::string& what) { std::printf("coordinator  %s\n", what.c_str()); }

/// All of a run but the computing: whatever is sent is heard a little later, in order.
class OneStep {
 public:
  OneStep() : coordination_({small_job(), 2}, 0) {}

  void run() {
    for (PeerNumber peer : {1, 2}) {
      const std::string address = absl::StrCat("127.0.0.1:", peer);
      apply(coordination_.on_join(peer, {"host", 0, address, "cpu", 1.0, {}, 0}, now_us_));
    }
    while (!later_.empty()) {
      const std::function<void()> next = std::move(later_.front());
      later_.pop();
      ++now_us_;
      next();
    }
  }

 private:
  // What the coordinator decides.
  void apply(CoordinatorOutcome outcome) {
    for (const CoordinatorDecision& decision : outcome.decisions()) {
      std::visit([this](const auto& each) { carry_out(each); }, decision);
    }
  }
  void carry_out(const QuiesceWorker& quiesce) {  // Nobody holds any state yet.
    later_.push([=, this] {
      apply(coordination_.on_quiesced(quiesce.worker, quiesce.generation, {}, now_us_));
    });
  }
  void carry_out(const AssignPlan& assign) {
    const Plan& plan = assign.plan;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const WorkerId worker = plan.stages[s].replicas.front().worker;
      ProgramOptions options;
      options.actions = plan.actions[s];
      options.stages = {{.stage = static_cast<int32_t>(s),
                         .is_first = s == 0,
                         .is_last = s + 1 == plan.stages.size(),
                         .leads = true}};
      options.samples_per_step = 4;
      options.microbatch_rows = plan.microbatch_rows;
      workers_.emplace(worker, Worker{StepProgram(options), static_cast<int32_t>(s)});
      later_.push(
          [=, this] { apply(coordination_.on_prepared(worker, assign.plan.generation, now_us_)); });
    }
    say("assigns a plan: stage 0 to w1, stage 1 to w2");
  }
  void carry_out(const StartRun& start) {
    say("starts training: both are prepared");
    for (auto& [id, worker] : workers_) apply(id, worker.program.on_start(start.order));
  }
  void carry_out(const JournalCommit& journal) {
    say("writes the step to the journal, as all stages are ready");
    later_.push([=, this] { apply(coordination_.on_journaled(journal.record.step, now_us_)); });
  }
  void carry_out(const BroadcastCommit& commit) {
    say("commits the step");
    for (auto& [id, worker] : workers_) apply(id, worker.program.on_commit(commit.order));
  }
  void carry_out(const auto&) {}  // Welcomes, events for people, the end.

  // What a worker decides.
  struct Worker {
    StepProgram program;
    int32_t stage = 0;
  };
  void apply(WorkerId id, ProgramOutcome outcome) {
    for (const ProgramCommand& command : outcome.decisions()) {
      std::visit([&](const auto& each) { carry_out(id, each); }, command);
    }
  }
  void carry_out(WorkerId id, const RunAction& run) {
    later_.push([=, this] {
      say(id, absl::StrCat("computes ", to_text(run.action)));
      pass_on(run);
      apply(id, workers_.at(id).program.on_work_done());
    });
  }
  void carry_out(WorkerId id, const RunNorm&) {
    later_.push([=, this] { apply(id, workers_.at(id).program.on_work_done()); });
  }
  void carry_out(WorkerId id, const RunUpdate&) {
    later_.push([=, this] {
      say(id, "updates its weights");
      apply(id, workers_.at(id).program.on_work_done());
    });
  }
  void carry_out(WorkerId id, const SendReady& ready) {
    say(id, "is ready: its gradients are final");
    ReadyReport report;
    report.replica = ReplicaId{static_cast<uint32_t>(workers_.at(id).stage)};
    report.step = ready.step;
    report.norm_squared = 1;
    if (ready.stage == 1) report.loss_sum = report.loss_tokens = 4;
    later_.push([=, this] { apply(coordination_.on_ready(id, report, now_us_)); });
  }
  void carry_out(WorkerId, const auto&) {}  // Reductions, saves and validation: none in this job.

  /// The output of an action goes straight to the neighbour.
  void pass_on(const RunAction& run) {
    const bool is_forward = run.action.type == ActionType::kForward;
    const int32_t to = run.action.stage + (is_forward ? 1 : -1);
    const InputKey key{is_forward ? InputKind::kActivation : InputKind::kGradient, run.step, to,
                       run.action.microbatch};
    for (auto& [id, worker] : workers_) {
      if (worker.stage != to) continue;
      later_.push([=, this, id = id] { apply(id, workers_.at(id).program.on_input(key)); });
    }
  }

  Coordination coordination_;
  std::map<WorkerId, Worker> workers_;
  std::queue<std::function<void()>> later_;
  uint64_t now_us_ = 0;
};

}  // namespace
}  // namespace skein::plans

int main() { skein::plans::OneStep().run(); }
