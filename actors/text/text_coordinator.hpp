#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "absl/status/status.h"
#include "actors/coordinator/worker_links.hpp"
#include "actors/messages.hpp"
#include "net/codec/membership.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/event_rate.hpp"
#include "plans/coordinator/awake_clock.hpp"
#include "plans/text/text_session.hpp"

namespace skein::actors {

/// Tokens that follow `begin` positions.
struct TextAddition {
  std::vector<int32_t> tokens;
  int64_t begin = 0;
};
/// The logits of a step have arrived.
struct TextLogits {
  uint64_t step = 0;
  net::TensorHandle logits;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextAddition)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TextLogits)

namespace skein::actors {

/// Draws text with workers: carries out what a `plans::TextSession` decides.
///   in   PeerOpened, PeerMessage, PeerClosed, PeerRejected   from the listener and its links
///   in   TextAddition   from the process: makes a step; there is one at a time
///   in   TextLogits     from the data plane
///   in   TickAtom       from itself, every 200 ms: looks for workers that say nothing any more
///   in   EndAtom        from the process: tells the workers to leave
///   out  Joined, Refused, TextRequest, TextLayers, TextStep, HeartbeatAck, Stop   to workers
using TextCoordinator = caf::typed_actor<caf::reacts_to<PeerOpened>, caf::reacts_to<PeerMessage>,
                                         caf::reacts_to<PeerClosed>, caf::reacts_to<PeerRejected>,
                                         caf::reacts_to<TextAddition>, caf::reacts_to<TextLogits>,
                                         caf::reacts_to<TickAtom>, caf::reacts_to<EndAtom>>;

struct TextCoordinatorConfig {
  plans::TextSession::Options session;
  net::Joined joined;      // What each worker is told, but for its number.
  int64_t vocab_size = 0;  // V
  std::shared_ptr<net::DataPlane> plane;
  // Called by the actor:
  std::function<void()> on_begin;                         // All layers are loaded.
  std::function<void(std::span<const float>)> on_logits;  // [V], for each step.
  std::function<void(absl::Status)> on_end;               // Once: nothing follows.
  std::function<void()> on_left;                          // After EndAtom: no worker is there.
};

struct TextCoordinatorState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "text-coordinator";

  TextCoordinator::stateful_pointer<TextCoordinatorState> self = nullptr;
  TextCoordinatorConfig config;
  std::optional<plans::TextSession> session;
  std::optional<plans::AwakeClock> clock;
  WorkerLinks links;
  plans::EventRate rejections;
  plans::DropCounts dropped;
  TextLogits arrived;   // Those of the newest step that has ended.
  bool leaves = false;  // The workers have been told to.

  /// By `clock`; tells the session of a pause that it finds.
  uint64_t now_us();
  void start(TextCoordinatorConfig new_config);
  void on_opened(const PeerOpened& opened);
  void on_message(const PeerMessage& message);
  void on_heartbeat(plans::WorkerId worker, const net::Heartbeat& heartbeat);
  void on_closed(const PeerClosed& closed);
  void on_rejected(const PeerRejected& rejected);
  void on_logits(const TextLogits& logits);
  void on_tick();
  void end();
  void apply(plans::TextSession::Answer answer);

 private:
  void carry_out(const plans::AcceptTextWorker& order);
  void carry_out(const plans::RefuseTextWorker& order);
  void carry_out(const plans::SendText& order);
  void carry_out(const plans::TextCut& cut);
  void carry_out(const plans::TextBegins& order);
  void carry_out(const plans::TextStepDone& order);
  void carry_out(const plans::TextEnds& order);
  net::EnvelopeHead head_for(plans::WorkerId worker) const;
};

TextCoordinator::behavior_type text_coordinator(
    TextCoordinator::stateful_pointer<TextCoordinatorState> self, TextCoordinatorConfig config);

}  // namespace skein::actors
