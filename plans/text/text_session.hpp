#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/text/text_messages.hpp"

namespace skein::plans {

/// Take the peer in as this worker.
struct AcceptTextWorker {
  PeerNumber peer = 0;
  WorkerId worker;
  std::string who;      // "w1 (cpu x1 on host)", for people.
  int64_t present = 0;  // How many are there now.
};
struct RefuseTextWorker {
  PeerNumber peer = 0;
  std::string why;
};
struct SendText {
  WorkerId to;
  std::variant<TextRequest, TextLayers, TextStep> message;
};
/// Workers have these layers, in their order; logits come from the last one.
struct TextCut {
  std::vector<std::pair<WorkerId, LayerRange>> parts;
};
/// All layers are loaded: steps may be made.
struct TextBegins {};
/// The logits behind the last position of the step are there.
struct TextStepDone {};
/// Nothing follows: why no text can be drawn any more.
struct TextEnds {
  absl::Status why;
};
using TextDecision = std::variant<AcceptTextWorker, RefuseTextWorker, SendText, TextCut, TextBegins,
                                  TextStepDone, TextEnds>;
using TextDecisions = std::vector<TextDecision>;

/// How workers draw text together: who takes part, which layers each has, which step is made.
///
///   1 gathering  workers join until there are as many as are asked for; one may leave again
///   2 measuring  each says what room it has
///   3 loading    layers are cut by that; each loads its own
///   4 idle       a step may be made
///   5 stepping   ... and is under way
///   6 ended      a worker has failed or is lost from 2 on, unless it has no layers, or the input
///                is bad, or the model does not fit
///
/// Times are of one clock that stands still while this process does, in microseconds. An event that
/// is dropped has changed nothing.
class TextSession {
 public:
  struct Options {
    std::string run;  // The text's id, as workers know runs by.
    TextRequest request;
    int64_t workers = 1;      // To wait for, >= 1.
    int64_t layers = 0;       // The model's.
    uint64_t silence_us = 0;  // A worker that says nothing for so long is lost.
    uint64_t secret = 0;
  };
  using Answer = Outcome<TextDecisions>;

  explicit TextSession(Options options) : options_(std::move(options)) {}

  Answer on_join(PeerNumber peer, const JoinRequest& join, uint64_t now_us);
  Answer on_room(WorkerId from, const TextRoom& room);
  Answer on_ready(WorkerId from);
  /// `is_bad_input`: another worker would fail alike.
  Answer on_failed(WorkerId from, const std::string& reason, bool is_bad_input);
  /// It does not reach the next one, which may be lost: that is waited for a moment, as it says
  /// more.
  Answer on_peer_failure(WorkerId from, const std::string& reason, uint64_t now_us);
  /// This process did nothing for so long, which no clock that events are told by has in it.
  void on_own_pause(uint64_t paused_us, uint64_t now_us);
  /// Its connection has ended.
  Answer on_lost(WorkerId worker, const std::string& why);
  Answer on_heartbeat(WorkerId from, uint64_t now_us);
  Answer on_tick(uint64_t now_us);
  /// Adds `tokens`, in [1, kTextStepMax], behind `begin` positions; in 4 only.
  Answer on_step(std::span<const int32_t> tokens, int64_t begin);
  Answer on_logits(uint64_t step);

  bool has_ended() const { return phase_ == Phase::kEnded; }

 private:
  enum class Phase { kGathering, kMeasuring, kLoading, kIdle, kStepping, kEnded };
  struct Member {
    PeerNumber peer = 0;
    JoinRequest join;
    uint64_t heard_us = 0;
    bool has_answered = false;  // In 2 and 3.
    TextRoom room;              // From 3 on.
  };

  Answer on_given_up(PeerNumber peer, const std::pair<const WorkerId, Member>& member);
  /// The text ends without it.
  bool is_needed(WorkerId worker) const;
  bool all_answered() const;
  TextDecisions end(absl::Status why);
  TextDecisions cut();
  std::vector<LayerRoom> rooms() const;
  std::string name_of(WorkerId worker) const;
  std::string pause_text() const;

  Options options_;
  Phase phase_ = Phase::kGathering;
  // As many as are asked for in 2; from 3 on those of `parts_`, at least.
  std::map<WorkerId, Member> members_;
  std::vector<std::pair<WorkerId, LayerRange>> parts_;  // From 3 on; tile the layers, none empty.
  uint32_t last_worker_ = 0;                            // Numbers are not given twice.
  uint64_t step_ = 0;                                   // The newest one.
  struct PeerFailure {
    WorkerId from;
    std::string reason;
    uint64_t told_us = 0;
  };
  std::optional<PeerFailure> peer_failure_;  // The first one.
  uint64_t own_pause_us_ = 0;                // Those that workers may have taken for a loss,
  uint64_t own_pause_end_us_ = 0;            // and when the last one was over.
  uint64_t watched_step_ = 0;                // That was under way at the last tick,
  uint64_t watched_us_ = 0;                  // and since when.
};

}  // namespace skein::plans
