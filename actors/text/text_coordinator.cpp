#include "actors/text/text_coordinator.hpp"

#include <chrono>
#include <utility>
#include <variant>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"
#include "actors/printing/stderr_lines.hpp"

namespace skein::actors {
namespace {

constexpr auto kTextTick = std::chrono::milliseconds(200);
constexpr uint64_t kTextTickUs = 200'000;
/// What a tick may be late on a busy machine.
constexpr uint64_t kTickSlackUs = 100'000;
/// A text has one life.
constexpr uint64_t kTextTerm = 1;

}  // namespace

TextCoordinator::behavior_type text_coordinator(
    TextCoordinator::stateful_pointer<TextCoordinatorState> self, TextCoordinatorConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  self->delayed_send(self, kTextTick, TickAtom::value);
  return {
      [self](const PeerOpened& opened) { self->state.on_opened(opened); },
      [self](const PeerMessage& message) { self->state.on_message(message); },
      [self](const PeerClosed& closed) { self->state.on_closed(closed); },
      [self](const PeerRejected& rejected) { self->state.on_rejected(rejected); },
      [self](const TextAddition& added) {
        TextCoordinatorState& state = self->state;
        state.apply(state.session->on_step(added.tokens, added.begin));
      },
      [self](const TextLogits& logits) { self->state.on_logits(logits); },
      [self](TickAtom) {
        self->state.on_tick();
        self->delayed_send(self, kTextTick, TickAtom::value);
      },
      [self](EndAtom) { self->state.end(); },
  };
}

uint64_t TextCoordinatorState::now_us() {
  const uint64_t now = clock->now_us(to_us(self->clock().now()));
  session->on_own_pause(clock->take_pause_us(), now);
  return now;
}

void TextCoordinatorState::start(TextCoordinatorConfig new_config) {
  config = std::move(new_config);
  session.emplace(config.session);
  clock.emplace(kTextTickUs, kTickSlackUs, to_us(self->clock().now()));
  config.plane->identify({config.joined.run, {}, kTextTerm});
  config.plane->set_plan_secret({plans::kTextGeneration, config.session.secret});
}

void TextCoordinatorState::on_opened(const PeerOpened& opened) {
  links.open(opened.peer, opened.link, opened.role, now_us());
  const bool is_worker = opened.role == net::schema::Role::WORKER;
  if (is_worker && !leaves) return;
  const char* why = is_worker ? "the text has ended; start again for another one"
                              : "text is drawn here; there is no run";
  opened.link->send(net::encode({}, net::Refused{why, ""}));
  opened.link->close();
}

void TextCoordinatorState::on_message(const PeerMessage& message) {
  const WorkerLinks::Peer* peer = links.find(message.peer);
  if (peer == nullptr) return;
  const plans::WorkerId worker = peer->worker;
  const net::ControlBody& body = message.message.body;
  if (const auto* join = std::get_if<plans::JoinRequest>(&body)) {
    if (worker.value != 0) return dropped.add(plans::DropReason::kRepeated);
    return apply(session->on_join(message.peer, *join, now_us()));
  }
  if (worker.value == 0) return dropped.add(plans::DropReason::kUnknown);
  if (const auto* heartbeat = std::get_if<net::Heartbeat>(&body)) {
    return on_heartbeat(worker, *heartbeat);
  }
  if (const auto* room = std::get_if<plans::TextRoom>(&body)) {
    return apply(session->on_room(worker, *room));
  }
  if (std::holds_alternative<plans::TextReady>(body)) return apply(session->on_ready(worker));
  if (const auto* failed = std::get_if<net::Failed>(&body)) {
    return apply(session->on_failed(worker, failed->reason, failed->bad_input));
  }
  if (const auto* failure = std::get_if<net::PeerFailure>(&body)) {
    return apply(session->on_peer_failure(worker, failure->reason, now_us()));
  }
  if (const auto* leave = std::get_if<net::Leave>(&body)) {
    apply(session->on_lost(worker, leave->reason));
    return links.send(head_for(worker), net::Stop{"it has asked to leave"});
  }
  dropped.add(plans::DropReason::kUnexpected);
}

void TextCoordinatorState::on_heartbeat(plans::WorkerId worker, const net::Heartbeat& heartbeat) {
  apply(session->on_heartbeat(worker, now_us()));
  links.send(head_for(worker), net::HeartbeatAck{heartbeat.sent_us, to_us(self->clock().now())});
}

void TextCoordinatorState::on_closed(const PeerClosed& closed) {
  const plans::WorkerId worker = links.close(closed.peer);
  if (worker.value != 0) {
    (void)now_us();  // A pause of our own may be why.
    apply(session->on_lost(worker, std::string(closed.why.message())));
  }
  if (leaves && links.workers().empty()) config.on_left();
}

void TextCoordinatorState::on_rejected(const PeerRejected& rejected) {
  if (!rejections.admit(now_us())) return;
  print_error_line(absl::StrCat("skein: turned away ", rejected.address, ": ", rejected.reason));
}

void TextCoordinatorState::on_logits(const TextLogits& logits) {
  arrived = logits;
  apply(session->on_logits(logits.step));
  arrived = {};
}

void TextCoordinatorState::on_tick() {
  const uint64_t now = now_us();
  links.close_silent(now);
  apply(session->on_tick(now));
  clock->on_tick(to_us(self->clock().now()));
}

void TextCoordinatorState::end() {
  leaves = true;
  for (const auto& [worker, peer] : links.workers()) {
    links.send(head_for(worker), net::Stop{"the text has been drawn"});
  }
  links.close_strangers();
  if (links.workers().empty()) config.on_left();
}

void TextCoordinatorState::apply(plans::TextSession::Answer answer) {
  if (answer.is_dropped()) return dropped.add(*answer.why_dropped());
  for (const plans::TextDecision& decision : answer.decisions()) {
    std::visit([this](const auto& each) { carry_out(each); }, decision);
  }
}

void TextCoordinatorState::carry_out(const plans::AcceptTextWorker& order) {
  links.bind(order.peer, order.worker);
  net::Joined joined = config.joined;
  joined.worker = order.worker;
  links.send(head_for(order.worker), joined);
  print_error_line(absl::StrCat("skein: ", order.who, " has joined, ", order.present, " of ",
                                config.session.workers));
}

void TextCoordinatorState::carry_out(const plans::RefuseTextWorker& order) {
  const WorkerLinks::Peer* peer = links.find(order.peer);
  if (peer == nullptr) return;
  peer->link->send(net::encode({}, net::Refused{order.why, ""}));
  peer->link->close();
}

void TextCoordinatorState::carry_out(const plans::SendText& order) {
  std::visit([&](const auto& message) { links.send(head_for(order.to), message); }, order.message);
}

void TextCoordinatorState::carry_out(const plans::TextCut& cut) {
  net::TensorInbox::StreamSpec stream;
  stream.generation = plans::kTextGeneration;
  stream.kind = net::schema::TensorKind::ACTIVATION;
  stream.row_count = 1;
  stream.row_floats = static_cast<uint32_t>(config.vocab_size);
  stream.sender = cut.parts.back().first;
  stream.tensors_max = 2;
  stream.on_tensor = [to = caf::actor_cast<caf::actor_addr>(self)](const net::TensorKey& key,
                                                                   net::TensorHandle logits) {
    const auto there = caf::actor_cast<caf::strong_actor_ptr>(to);
    if (!there) return;
    caf::anon_send(caf::actor_cast<TextCoordinator>(there),
                   TextLogits{key.step, std::move(logits)});
  };
  config.plane->inbox().open(std::move(stream));
  print_error_line(absl::StrCat(
      "skein: layers ", absl::StrJoin(cut.parts, ", ", [](std::string* out, const auto& part) {
        const auto& [worker, layers] = part;
        absl::StrAppend(out, layers.begin, "-", layers.end - 1, " on w", worker.value);
      })));
}

void TextCoordinatorState::carry_out(const plans::TextBegins&) { config.on_begin(); }

void TextCoordinatorState::carry_out(const plans::TextStepDone&) {
  config.on_logits(*arrived.logits);
}

void TextCoordinatorState::carry_out(const plans::TextEnds& order) { config.on_end(order.why); }

net::EnvelopeHead TextCoordinatorState::head_for(plans::WorkerId worker) const {
  return {.generation = plans::kTextGeneration, .term = kTextTerm, .receiver = worker.value};
}

}  // namespace skein::actors
