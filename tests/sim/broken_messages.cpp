#include "tests/sim/broken_messages.hpp"

#include <utility>

namespace skein::sim {

bool BrokenMessages::receive_at_coordinator(Mutation mutation, net::Envelope& message) {
  auto* join = std::get_if<plans::JoinRequest>(&message.body);
  if (mutation == Mutation::kRunIgnored && join) join->run.clear();
  return mutation != Mutation::kFullForgotten || !std::holds_alternative<net::Failed>(message.body);
}

void BrokenMessages::keep_first(net::ControlBody& body) {
  auto* joined = std::get_if<net::Joined>(&body);
  auto* assign = std::get_if<net::Assign>(&body);
  if (joined && !first_) first_ = *joined;
  if (joined && mutation_ == Mutation::kRunIgnored) joined->run = first_->run;
  if (mutation_ != Mutation::kConfigKept || !first_) return;
  if (assign) assign->config_digest = first_->config_digest;
  if (!joined) return;
  joined->job_config = first_->job_config;
  joined->config_digest = first_->config_digest;
}

std::optional<net::Envelope> BrokenMessages::receive(net::Envelope message) {
  net::ControlBody& body = message.body;
  keep_first(body);
  auto* claim = std::get_if<net::Claim>(&body);
  auto* update = std::get_if<plans::UpdateOrder>(&body);
  auto* average = std::get_if<net::Average>(&body);
  const bool ends_round = std::holds_alternative<plans::CommitOrder>(body) ||
                          std::holds_alternative<net::Quiesce>(body);
  if (ends_round) is_done_ = false;
  if (claim && first_sample_ == 0) first_sample_ = claim->samples.first;
  const bool is_returned = claim && is_done_;
  if (update) is_done_ = !update->next;
  if (message.head.receiver % 2 == 0) return message;
  const auto* token = std::get_if<plans::TokenOrder>(&body);
  const bool is_grant = token && token->kind == plans::TokenOrder::Kind::kCompute;
  if (mutation_ == Mutation::kClaimKept && is_grant) return std::nullopt;
  const bool is_abort = std::holds_alternative<net::AbortGroup>(body);
  if (mutation_ == Mutation::kAbortSkipped && is_abort) return std::nullopt;
  if (mutation_ == Mutation::kReturnedLost && is_returned) return std::nullopt;
  if (mutation_ == Mutation::kSumSkewed && average) average->members[0].weight *= 1.01;
  if (mutation_ == Mutation::kSamplesRepeated && update && update->next) {
    update->next->first = first_sample_;
  }
  return message;
}

}  // namespace skein::sim
