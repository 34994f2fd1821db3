#include "plans/worker/pipeline_pass.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::plans {
namespace {

/// The passes of all ranks of a pipeline whose head uses the embedding, and what is between them.
struct TiedPipeline {
  TiedPipeline(const Schedule& schedule, const std::vector<int32_t>& rank_of) : ranks(rank_of) {
    const auto last = static_cast<int32_t>(rank_of.size()) - 1;
    for (size_t rank = 0; rank < schedule.size(); ++rank) {
      PipelinePass::Options options;
      options.actions = schedule[rank];
      for (int32_t stage = 0; stage <= last; ++stage) {
        if (rank_of[static_cast<size_t>(stage)] != static_cast<int32_t>(rank)) continue;
        StageRole role;
        role.stage = stage;
        role.is_first = stage == 0;
        role.is_last = stage == last;
        role.has_tied_end = role.is_first || role.is_last;
        options.stages.push_back(role);
      }
      passes.emplace_back(std::move(options));
    }
    work.resize(passes.size());
  }

  int32_t last() const { return static_cast<int32_t>(ranks.size()) - 1; }

  void take(size_t rank, const ProgramCommands& commands) {
    for (const ProgramCommand& each : commands) {
      if (const auto* run = std::get_if<RunAction>(&each)) work[rank].push_back(*run);
    }
  }
  void begin(uint64_t step) {
    for (size_t rank = 0; rank < passes.size(); ++rank) take(rank, passes[rank].begin(step));
  }
  /// The oldest piece of work of the rank ends, and its outputs are on their way.
  void end_one(size_t rank) {
    const RunAction run = work[rank].front();
    work[rank].pop_front();
    const int32_t stage = run.action.stage, microbatch = run.action.microbatch;
    const bool is_forward = run.action.type == ActionType::kForward;
    if (is_forward && stage < last()) {
      sent.push_back({InputKind::kActivation, run.step, stage + 1, microbatch});
    }
    if (!is_forward && run.action.type != ActionType::kBackwardWeight && stage > 0) {
      sent.push_back({InputKind::kGradient, run.step, stage - 1, microbatch});
    }
    if (stage == 0 && run.begins_step)
      sent.push_back({InputKind::kTiedWeights, run.step, last(), 0});
    if (stage == last() && run.ends_step) {
      sent.push_back({InputKind::kTiedGradient, run.step, 0, 0});
    }
    take(rank, passes[rank].on_work_done());
  }
  void deliver(size_t which) {
    const InputKey key = sent[which];
    sent.erase(sent.begin() + static_cast<ptrdiff_t>(which));
    const auto rank = static_cast<size_t>(ranks[static_cast<size_t>(key.stage)]);
    ProgramOutcome outcome = passes[rank].on_input(key);
    ASSERT_TRUE(outcome.is_accepted()) << "stage " << key.stage;
    take(rank, outcome.decisions());
  }
  /// In any order, until nothing is left to happen.
  void run(Rng& rng) {
    while (true) {
      std::vector<size_t> busy;
      for (size_t rank = 0; rank < work.size(); ++rank) {
        if (!work[rank].empty()) busy.push_back(rank);
      }
      const size_t choices = busy.size() + sent.size();
      if (choices == 0) return;
      const size_t choice = rng.below(choices);
      if (choice < busy.size()) {
        end_one(busy[choice]);
      } else {
        ASSERT_NO_FATAL_FAILURE(deliver(choice - busy.size()));
      }
    }
  }

  std::vector<int32_t> ranks;  // By stage.
  std::vector<PipelinePass> passes;
  std::vector<std::deque<RunAction>> work;
  std::vector<InputKey> sent;
};

/// Whatever the schedule, the ends of the pipeline never wait for each other in a circle.
TEST(PipelinePass, ATiedEmbeddingStopsNoSchedule) {
  Rng rng(5);
  int walked = 0;
  for (const ScheduleKind kind : schedule_kinds()) {
    for (int32_t rank_count = 1; rank_count <= 4; ++rank_count) {
      for (int32_t virtual_stages = 1; virtual_stages <= 3; ++virtual_stages) {
        if (rank_count * virtual_stages < 2) continue;
        for (int32_t microbatches = 1; microbatches <= 8; ++microbatches) {
          const ScheduleShape shape = looped_shape(rank_count, virtual_stages, microbatches);
          const auto schedule = make_schedule(kind, shape);
          if (!schedule.ok()) continue;  // It is not made for the shape.
          ++walked;
          TiedPipeline pipeline(*schedule, shape.rank_of_stage);
          for (uint64_t step = 0; step < 3; ++step) {
            pipeline.begin(step);
            ASSERT_NO_FATAL_FAILURE(pipeline.run(rng));
            for (const PipelinePass& each : pipeline.passes) {
              ASSERT_TRUE(each.is_complete())
                  << to_text(kind) << ", " << rank_count << " ranks of " << virtual_stages
                  << " stages, " << microbatches << " micro-batches: " << each.activity();
              each.check_invariants();
            }
          }
        }
      }
    }
  }
  EXPECT_GT(walked, 150);
}

}  // namespace
}  // namespace skein::plans
