#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/schedule/action.hpp"

namespace skein::plans {

// What a worker's program hears.

/// What arrives from a neighbouring stage, or from the other end of the pipeline.
enum class InputKind { kActivation, kGradient, kValidation, kTiedWeights, kTiedGradient };

struct InputKey {
  InputKind kind = InputKind::kActivation;
  uint64_t step = 0;
  int32_t stage = 0;  // The stage that takes the input.
  int32_t microbatch = 0;
  auto operator<=>(const InputKey&) const = default;
};

/// The coordinator's word on steps of the job, as a replica needs it.
struct CommitOrder {
  uint64_t step = 0;
  double gradient_norm = 0;
  bool validate = false;
  bool checkpoint = false;
  bool last = false;            // No further step of this generation follows.
  bool snapshot = false;        // Copy the state after this step to its snapshot peer.
  uint64_t snapshot_floor = 0;  // Snapshots of fewer steps are not needed any more.
  bool profile = false;         // Timings of the next step are wanted.
  uint64_t turn = 0;            // The position of the next pass on devices that are shared; 0: none
                                // is named (`TurnNaming`).
  bool operator==(const CommitOrder&) const = default;
};

/// Samples for a step of a pipeline replica's own.
struct ClaimOrder {
  uint64_t step = 0;  // Its own: those that it has done or has claims for.
  SampleClaim samples;
  bool profile = false;  // Timings of the step are wanted.
  bool operator==(const ClaimOrder&) const = default;
};

/// A pipeline replica applies its own update.
struct UpdateOrder {
  uint64_t step = 0;  // The pipeline replica's own.
  double gradient_norm = 0;
  std::optional<SampleClaim> next;  // It goes on with these; none: it pauses.
  bool profile = false;             // Timings of the next step are wanted.
  uint64_t turn = 0;                // As in `CommitOrder`; 0 if there is no next step.
  bool operator==(const UpdateOrder&) const = default;
};

/// The members of a group average their weights; a replica that is here is one of them.
struct AverageOrder {
  int32_t stage = 0;
  uint64_t number = 0;      // > 0; ascending for each stage.
  bool is_alone = false;    // The group has one member: there is nothing to do.
  bool is_closing = false;  // It comes at the end of a round, when there are no more samples.
  bool is_global = false;   // is_closing: the last one, after which all replicas are alike.
  uint64_t steps_done = 0;  // is_global: of the job.
  bool operator==(const AverageOrder&) const = default;
};

/// What the coordinator hears of tokens.
enum class TokenEvent {
  kBegun,   // The worker's device has begun the step: it asks for its first tokens.
  kOutput,  // The forward of a token has ended; not of the last stage, where nobody takes it.
  kDone,    // Its backward has, too.
};

/// The coordinator's word on a token (`plans/tokens/token_pool.hpp`) to a replica.
struct TokenOrder {
  enum class Kind {
    kCompute,  // It is yours: forward, and later backward.
    kSend,     // The output that you have made of it is wanted by another replica.
    kReduce,   // All tokens of the replica's stage are done in this step: reduce the gradients.
  };
  Kind kind = Kind::kCompute;
  ReplicaId replica;  // The receiver's.
  uint64_t step = 0;  // The job's.
  int32_t token = 0;  // Its place among those of the stage; kReduce: 0.
  /// kCompute: who holds its inputs, in their order; empty in the first stage. kSend: whom the
  /// output goes to, one.
  std::vector<ReplicaId> others;
  bool operator==(const TokenOrder&) const = default;
};

// What a replica does next. The first six are work for the device, which does it in order;
// `on_work_done` follows for each.

struct RunAction {
  uint64_t step = 0;
  Action action;
  /// It is the first action of its stage in the step: gradients and loss are zeroed. Where other
  /// steps are in flight: the first one that adds to gradients or loss.
  bool begins_step = false;
  bool ends_step = false;  // It is the last action of its stage in the step.
  /// The last action of a stage may be cut in parts, one for each bucket of the stage's gradients
  /// and completing it: `part` of `part_count`. They are work of the device one by one.
  int32_t part = 0;
  int32_t part_count = 1;
  bool is_whole() const { return part_count == 1; }
  bool is_last_part() const { return part + 1 == part_count; }
  /// Names what its forward keeps for its backward, apart from all that are in flight with it.
  int32_t stash() const {
    return static_cast<int32_t>(step % (kClaimsInFlightMax + 1)) << 24 | action.microbatch;
  }
  bool operator==(const RunAction&) const = default;
};
/// Gradients and losses of all stages that are here are zeroed: what a worker may have begun a step
/// without, which is granted to it piece by piece.
struct RunBegin {
  uint64_t step = 0;
  bool operator==(const RunBegin&) const = default;
};
/// Shows the gradients of a stage to whatever adds them up, all at once; without groups it computes
/// their norm.
struct RunShare {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const RunShare&) const = default;
};
struct RunNorm {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const RunNorm&) const = default;
};
/// All stages that are here apply their gradients.
struct RunUpdate {
  uint64_t step = 0;      // The step that ends, counted as those of `RunAction`.
  uint64_t job_step = 0;  // The step of the job that it is, for the learning rate.
  double gradient_norm = 0;
  bool profile = false;  // Timings of the next step are wanted.
  /// Nobody has looked at the gradients: each stage clips by its own norm, and does not apply what
  /// is not finite.
  bool by_stage = false;
  bool operator==(const RunUpdate&) const = default;
};
struct RunValidation {
  uint64_t step = 0;
  int32_t stage = 0;
  int32_t microbatch = 0;
  bool begins = false;
  bool operator==(const RunValidation&) const = default;
};
struct SendReady {
  uint64_t step = 0;
  int32_t stage = 0;
  uint32_t weight_delay = 0;  // As in `ReadyReport`.
  bool operator==(const SendReady&) const = default;
};
/// The first gradients of a step are final at a stage.
struct SendEarlySignal {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendEarlySignal&) const = default;
};
/// What has become of a token.
struct SendTokenReport {
  uint64_t step = 0;
  int32_t stage = 0;
  int32_t token = 0;
  TokenEvent event = TokenEvent::kOutput;
  bool operator==(const SendTokenReport&) const = default;
};
/// The output of a token, which has been kept, goes to a replica of the next stage.
struct SendOutput {
  uint64_t step = 0;
  int32_t stage = 0;
  int32_t token = 0;
  ReplicaId to;
  bool operator==(const SendOutput&) const = default;
};
struct RunReduction {
  GroupId group;
  uint64_t step = 0;
  int32_t bucket = 0;
  bool operator==(const RunReduction&) const = default;
};
struct SendReduced {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendReduced&) const = default;
};
/// Take a copy of the state of a stage, which is that after `steps_done` steps, and write it.
struct SaveState {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  bool operator==(const SaveState&) const = default;
};
/// Take a copy of the state of a stage, which is that after `steps_done` steps, for its snapshot
/// peer.
struct KeepSnapshot {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  bool operator==(const KeepSnapshot&) const = default;
};
struct SendValidated {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendValidated&) const = default;
};
/// A round begins from the weights that the models have now, which all pipeline replicas share.
struct BeginRound {
  bool operator==(const BeginRound&) const = default;
};
/// Average the weights of a stage (and the moments, if `is_global`) with those of the other
/// members; `on_averaged` follows.
struct RunAverage {
  int32_t stage = 0;
  uint64_t number = 0;
  bool is_global = false;
  bool operator==(const RunAverage&) const = default;
};

using ProgramCommand =
    std::variant<RunAction, RunNorm, RunUpdate, RunValidation, SendReady, RunReduction, SendReduced,
                 SaveState, KeepSnapshot, SendValidated, BeginRound, RunAverage, SendEarlySignal,
                 RunBegin, RunShare, SendTokenReport, SendOutput>;
/// They are to be started in order.
using ProgramCommands = std::vector<ProgramCommand>;
using ProgramOutcome = Outcome<ProgramCommands>;

/// Puts the commands of `from` behind those of `to`.
inline void append(ProgramCommands& to, const ProgramCommands& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace skein::plans
