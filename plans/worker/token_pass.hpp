#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::plans {

/// A step of a worker that is granted tokens (`plans/tokens/token_pool.hpp`): it computes those
/// that it has been granted, in whatever order their inputs come, and reduces the gradients of a
/// stage when the coordinator says that all of its tokens are done, here and elsewhere.
///
/// It asks for its first tokens when the device has begun the step, and not before: whoever is held
/// up then has nothing that others could compute. Of what could be given to the device, the
/// gradients of a stage that is to be reduced go first, then the backward of the deepest stage,
/// then the forward that was granted first. The device has one piece of work ahead.
class TokenPass {
 public:
  struct Options {
    std::vector<StageRole> stages;  // Ascending.
    uint64_t samples_per_step = 1;  // A multiple of every stage's rows.
    uint64_t first_step = 0;        // Of the first pass.
  };
  explicit TokenPass(Options options);

  /// `step`  >= the first one, and above that of the pass before, which is complete.
  ProgramCommands begin(uint64_t step);
  /// An activation or a gradient of this step or of the next one: others may be so far ahead.
  ProgramOutcome on_input(const InputKey& key);
  /// The oldest piece of work of the pass that the device has has ended.
  ProgramCommands on_work_done();
  ProgramOutcome on_group_reduced(GroupId group, uint64_t step, int32_t bucket);
  /// For this step, or for the next one: the word may come before the commit is carried out.
  ProgramOutcome on_token(int32_t stage, const TokenOrder& order);

  uint64_t step() const { return step_; }
  bool computes() const { return is_begun_ && !is_complete(); }
  bool is_complete() const { return is_begun_ && finals_ == options_.stages.size(); }
  /// The device has work of the pass.
  bool is_working() const { return !running_.empty(); }
  /// What it waits for or has given to the device ("2B5"), for people.
  std::string activity() const;
  /// Full sweep over the invariants that stand beside the fields.
  void check_invariants() const;

  /// Who holds the inputs of a token that was granted in this step; else empty.
  std::vector<ReplicaId> holders(int32_t stage, int32_t token) const;

 private:
  using Token = std::pair<int32_t, int32_t>;  // Stage and number.
  enum class TokenState { kGranted, kComputing, kHeld, kReturning, kDone };
  struct OwnToken {
    TokenState state = TokenState::kGranted;
    std::vector<ReplicaId> holders;
    bool is_sent = false;  // Its output.
  };
  enum class StageState {
    kOpen,      // More tokens may be granted.
    kDone,      // All tokens of the stage are done: its gradients are to be shared.
    kSharing,   // The device does that.
    kReducing,  // The groups add up.
    kReduced,   // They have: the norm is to be computed.
    kNorm,      // The device does that.
    kFinal,
  };
  struct StageProgress {
    StageState state = StageState::kOpen;
    size_t groups_left = 0;
  };

  int64_t token_count(const StageRole& role) const;
  ProgramOutcome carry_out(const StageRole& role, const TokenOrder& order);
  ProgramCommands advance();
  /// The next piece of work that the device may have, if there is one.
  bool start_next(ProgramCommands& commands);
  bool start_stage_work(ProgramCommands& commands);
  bool start_backward(ProgramCommands& commands);
  bool start_forward(ProgramCommands& commands);
  void start(const Token& token, ActionType type, ProgramCommands& commands);
  ProgramCommands end_action(const RunAction& run);
  void end_share(int32_t stage, ProgramCommands& commands);
  void finish(StageProgress& progress);

  const Options options_;
  uint64_t step_ = 0;
  bool is_begun_ = false;
  std::map<Token, OwnToken> tokens_;  // That this step's orders have granted.
  std::deque<Token> forwards_;        // Those of them in `kGranted`, in the order of the orders.
  std::map<int32_t, StageProgress> progress_;  // By stage; all of them once it has begun.
  size_t finals_ = 0;                          // Stages in `kFinal`.
  std::map<GroupId, int32_t> reduced_;         // Buckets, of groups that are under way.
  std::deque<ProgramCommand> running_;         // At most two; empty when complete.
  std::set<InputKey> inputs_;                  // Arrived and not used; of this step or the next.
  /// Orders for the next step, or for the first one before it has begun; a few for each token.
  std::deque<std::pair<int32_t, TokenOrder>> early_;
};

}  // namespace skein::plans
