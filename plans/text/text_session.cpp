#include "plans/text/text_session.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/coordinator/membership.hpp"

namespace skein::plans {
namespace {

/// The end of a dead worker's connections is told by all of its peers within that.
constexpr uint64_t kPeerFailurePatienceUs = 2'000'000;
/// A worker that lives may be stuck in its step: of the largest models one on processors takes
/// minutes.
constexpr uint64_t kStepMaxUs = 600'000'000;
/// A shorter pause of our own makes nobody give us up.
constexpr uint64_t kTellPauseUs = 1'000'000;

}  // namespace

TextSession::Answer TextSession::on_join(PeerNumber peer, const JoinRequest& join,
                                         uint64_t now_us) {
  const auto refuse = [peer](std::string why) {
    return TextDecisions{RefuseTextWorker{peer, std::move(why)}};
  };
  if (!join.run.empty() && join.run != options_.run) {
    return refuse(absl::StrCat("text is drawn here, and this worker serves run ", join.run,
                               "; start another worker"));
  }
  if (has_ended()) return refuse("the text has ended; start again for another one");
  // The process has come anew: its old connection is dead, and we have not heard of it.
  const auto before = std::find_if(members_.begin(), members_.end(), [&](const auto& each) {
    return is_same_process(each.second.join, join);
  });
  if (phase_ != Phase::kGathering && before != members_.end()) return on_given_up(peer, *before);
  if (phase_ != Phase::kGathering) {
    return refuse(
        absl::StrCat("the text that is drawn here has its ", options_.workers, " workers already"));
  }
  if (before != members_.end()) members_.erase(before);
  const WorkerId worker{++last_worker_};
  Member& member = members_[worker];
  member.peer = peer;
  member.join = join;
  member.heard_us = now_us;
  const auto present = static_cast<int64_t>(members_.size());
  TextDecisions decisions = {AcceptTextWorker{peer, worker, name_of(worker), present}};
  if (present < options_.workers) return decisions;
  phase_ = Phase::kMeasuring;
  for (const auto& [id, each] : members_) decisions.push_back(SendText{id, options_.request});
  return decisions;
}

TextSession::Answer TextSession::on_room(WorkerId from, const TextRoom& room) {
  const auto member = members_.find(from);
  if (member == members_.end()) return Dropped{DropReason::kUnknown};
  if (phase_ != Phase::kMeasuring) return Dropped{DropReason::kUnexpected};
  if (member->second.has_answered) return Dropped{DropReason::kRepeated};
  if (static_cast<int64_t>(room.room.layer_bytes.size()) != options_.layers) {
    return Dropped{DropReason::kNotAllowed};
  }
  member->second.room = room;
  member->second.has_answered = true;
  return all_answered() ? cut() : TextDecisions();
}

TextSession::Answer TextSession::on_ready(WorkerId from) {
  const auto member = members_.find(from);
  if (member == members_.end()) return Dropped{DropReason::kUnknown};
  if (phase_ != Phase::kLoading) return Dropped{DropReason::kUnexpected};
  if (member->second.has_answered) return Dropped{DropReason::kRepeated};
  member->second.has_answered = true;
  if (!all_answered()) return TextDecisions();
  phase_ = Phase::kIdle;
  return TextDecisions{TextBegins()};
}

TextSession::Answer TextSession::on_failed(WorkerId from, const std::string& reason,
                                           bool is_bad_input) {
  if (!members_.contains(from)) return Dropped{DropReason::kUnknown};
  if (has_ended()) return Dropped{DropReason::kStale};
  if (!is_bad_input && !is_needed(from)) return on_lost(from, reason);
  const std::string text = absl::StrCat(name_of(from), " cannot draw text: ", reason);
  return end(is_bad_input ? absl::DataLossError(text) : absl::UnavailableError(text));
}

TextSession::Answer TextSession::on_peer_failure(WorkerId from, const std::string& reason,
                                                 uint64_t now_us) {
  if (!members_.contains(from)) return Dropped{DropReason::kUnknown};
  if (has_ended()) return Dropped{DropReason::kStale};
  if (peer_failure_) return Dropped{DropReason::kRepeated};
  peer_failure_ = {from, reason, now_us};
  return TextDecisions();
}

TextSession::Answer TextSession::on_lost(WorkerId worker, const std::string& why) {
  if (!members_.contains(worker)) return Dropped{DropReason::kUnknown};
  if (has_ended()) return Dropped{DropReason::kStale};
  if (!is_needed(worker)) {
    members_.erase(worker);
    return TextDecisions();
  }
  return end(absl::UnavailableError(absl::StrCat(name_of(worker),
                                                 " is lost, and the text ends here: ", why,
                                                 pause_text(), "; draw it again")));
}

/// It has heard nothing of us for too long, and does not know which step is under way.
TextSession::Answer TextSession::on_given_up(PeerNumber peer,
                                             const std::pair<const WorkerId, Member>& member) {
  const bool ends = is_needed(member.first);
  TextDecisions decisions = {RefuseTextWorker{
      peer, ends ? "this worker closed its connection and made another one, which has ended the "
                   "text; draw it again"
                 : "this worker closed its connection and made another one; the text goes on "
                   "without it"}};
  const Answer lost = on_lost(member.first, "it closed its connection and made another one");
  for (const TextDecision& each : lost.decisions()) decisions.push_back(each);
  return decisions;
}

void TextSession::on_own_pause(uint64_t paused_us, uint64_t now_us) {
  if (paused_us < kTellPauseUs) return;
  own_pause_us_ += paused_us;
  own_pause_end_us_ = now_us;
}

TextSession::Answer TextSession::on_heartbeat(WorkerId from, uint64_t now_us) {
  const auto member = members_.find(from);
  if (member == members_.end()) return Dropped{DropReason::kUnknown};
  member->second.heard_us = std::max(member->second.heard_us, now_us);
  return TextDecisions();
}

TextSession::Answer TextSession::on_tick(uint64_t now_us) {
  if (has_ended()) return Dropped{DropReason::kStale};
  if (peer_failure_ && now_us > peer_failure_->told_us + kPeerFailurePatienceUs) {
    const PeerFailure told = *std::exchange(peer_failure_, std::nullopt);
    Answer answer = on_failed(told.from, told.reason, /*is_bad_input=*/false);
    if (has_ended()) return answer;
  }
  if (now_us > own_pause_end_us_ + options_.silence_us) own_pause_us_ = 0;
  std::vector<WorkerId> silent;
  for (const auto& [id, member] : members_) {
    if (now_us > member.heard_us + options_.silence_us) silent.push_back(id);
  }
  TextDecisions decisions;
  for (const WorkerId worker : silent) {
    const PeerNumber peer = members_.at(worker).peer;
    Answer answer = on_lost(worker, "it has sent nothing for too long");
    if (has_ended()) return answer;
    // If it lives, it does not know that it is not counted on.
    decisions.push_back(
        RefuseTextWorker{peer, "this worker sent nothing for too long; start it again"});
  }
  if (phase_ != Phase::kStepping) return decisions;
  if (std::exchange(watched_step_, step_) != step_) watched_us_ = now_us;
  if (now_us > watched_us_ + kStepMaxUs) {
    return end(absl::DeadlineExceededError(absl::StrCat("a step of the text takes more than ",
                                                        kStepMaxUs / 1'000'000,
                                                        " s: a worker is stuck; draw it again")));
  }
  return decisions;
}

TextSession::Answer TextSession::on_step(std::span<const int32_t> tokens, int64_t begin) {
  if (phase_ != Phase::kIdle) return Dropped{DropReason::kUnexpected};
  SKEIN_CHECK(!tokens.empty() && static_cast<int64_t>(tokens.size()) <= kTextStepMax)
      << tokens.size();
  phase_ = Phase::kStepping;
  TextDecisions decisions;
  TextStep step = {++step_, begin, static_cast<int64_t>(tokens.size()), {}};
  for (const auto& [worker, layers] : parts_) {
    step.tokens.clear();
    if (layers.begin == 0) step.tokens.assign(tokens.begin(), tokens.end());
    decisions.push_back(SendText{worker, step});
  }
  return decisions;
}

TextSession::Answer TextSession::on_logits(uint64_t step) {
  if (step != step_) return Dropped{step < step_ ? DropReason::kStale : DropReason::kNotAllowed};
  if (phase_ != Phase::kStepping) return Dropped{DropReason::kRepeated};
  phase_ = Phase::kIdle;
  return TextDecisions{TextStepDone()};
}

bool TextSession::is_needed(WorkerId worker) const {
  if (phase_ == Phase::kGathering) return false;  // Another one may come in its place.
  return phase_ == Phase::kMeasuring ||
         std::any_of(parts_.begin(), parts_.end(),
                     [&](const auto& part) { return part.first == worker; });
}

bool TextSession::all_answered() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& each) { return each.second.has_answered; });
}

TextDecisions TextSession::end(absl::Status why) {
  phase_ = Phase::kEnded;
  return {TextEnds{std::move(why)}};
}

/// Workers on one machine share what it has, in equal parts.
std::vector<LayerRoom> TextSession::rooms() const {
  std::map<std::string, int64_t> sharing;
  for (const auto& [id, member] : members_) {
    if (member.room.is_host_memory) ++sharing[member.join.host_name];
  }
  std::vector<LayerRoom> rooms;
  for (const auto& [id, member] : members_) {
    rooms.push_back(member.room.room);
    if (member.room.is_host_memory) rooms.back().free_bytes /= sharing.at(member.join.host_name);
  }
  return rooms;
}

/// From 2 to 3.
TextDecisions TextSession::cut() {
  const MemoryCut cut = cut_by_memory(rooms());
  if (cut.missing_bytes > 0) {
    const LayerRange& last = cut.ranges.back();
    return end(absl::ResourceExhaustedError(
        absl::StrCat("drawing text with a context of ", options_.request.positions,
                     " tokens: ", cut.missing_bytes, " bytes of memory are missing on ",
                     name_of(members_.rbegin()->first), " for layers ", last.begin, "..", last.end,
                     "; use more workers, or give a smaller --tokens or a shorter --prompt")));
  }
  auto range = cut.ranges.begin();
  for (auto& [id, member] : members_) {
    // Who has no room has nothing to load.
    member.has_answered = range->size() == 0;
    if (range->size() > 0) parts_.emplace_back(id, *range);
    ++range;
  }
  phase_ = Phase::kLoading;
  TextDecisions decisions = {TextCut{parts_}};
  for (size_t i = 0; i < parts_.size(); ++i) {
    TextLayers order;
    order.layers = parts_[i].second;
    if (i > 0) order.previous = parts_[i - 1].first;
    if (i + 1 < parts_.size()) {
      order.next = parts_[i + 1].first;
      order.next_address = members_.at(order.next).join.data_address;
    }
    order.secret = options_.secret;
    decisions.push_back(SendText{parts_[i].first, std::move(order)});
  }
  return decisions;
}

std::string TextSession::name_of(WorkerId worker) const {
  const JoinRequest& join = members_.at(worker).join;
  return absl::StrCat("w", worker.value, " (", join.device, " on ", join.host_name, ")");
}

std::string TextSession::pause_text() const {
  if (own_pause_us_ == 0) return "";
  return absl::StrCat(", after this process was paused for ", own_pause_us_ / 1'000'000, " s");
}

}  // namespace skein::plans
