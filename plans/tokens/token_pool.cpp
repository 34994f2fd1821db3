#include "plans/tokens/token_pool.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

uint32_t TokenShape::count(uint32_t level) const {
  const uint64_t each = samples_of_token[level];
  return static_cast<uint32_t>((samples + each - 1) / each);
}

TokenPool::TokenPool(TokenShape shape) : shape_(std::move(shape)), done_(shape_.levels()) {
  SKEIN_CHECK(shape_.samples > 0 && shape_.levels() > 0) << shape_.samples;
  ready_.resize(shape_.levels());
  for (uint32_t level = 0; level < shape_.levels(); ++level) {
    const uint64_t each = shape_.samples_of_token[level];
    SKEIN_CHECK(each > 0 && (level == 0 || each % shape_.samples_of_token[level - 1] == 0))
        << "level " << level << " of " << each << " samples";
    tokens_.emplace_back(shape_.count(level));
  }
  for (uint32_t index = 0; index < shape_.count(0); ++index) set({0, index}, State::kReady);
}

SampleClaim TokenPool::samples_of(TokenId id) const {
  const uint64_t each = shape_.samples_of_token[id.level];
  const uint64_t first = id.index * each;
  return {first, std::min(each, shape_.samples - first)};
}

TokenPool::Tokens TokenPool::inputs_of(TokenId id) const {
  Tokens inputs;
  if (id.level == 0) return inputs;
  const SampleClaim samples = samples_of(id);
  const uint64_t each = shape_.samples_of_token[id.level - 1];
  for (uint64_t first = samples.first; first < samples.first + samples.count; first += each) {
    inputs.push_back({id.level - 1, static_cast<uint32_t>(first / each)});
  }
  return inputs;
}

std::optional<TokenId> TokenPool::consumer_of(TokenId id) const {
  if (id.level + 1 == shape_.levels()) return std::nullopt;
  const uint64_t first = samples_of(id).first;
  return TokenId{id.level + 1,
                 static_cast<uint32_t>(first / shape_.samples_of_token[id.level + 1])};
}

void TokenPool::set(TokenId id, State state) {
  Token& own = token(id);
  if (own.state == State::kReady) ready_[id.level].erase(id.index);
  own.state = state;
  if (state == State::kReady) {
    ready_[id.level].insert(id.index);
    own.ready_since = turns_++;
  }
}

bool TokenPool::has_inputs(TokenId id) const {
  const Tokens inputs = inputs_of(id);
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](TokenId input) { return at(input).state == State::kHeld; });
}

void TokenPool::claim(TokenId id, WorkerId worker) {
  SKEIN_CHECK(at(id).state == State::kReady) << id.level << "." << id.index;
  set(id, State::kClaimed);
  token(id).holder = worker;
}

Outcome<TokenPool::Tokens> TokenPool::on_output(WorkerId worker, TokenId id) {
  if (id.level >= shape_.levels() || id.index >= tokens_[id.level].size()) {
    return Dropped{DropReason::kUnknown};
  }
  if (at(id).holder != worker) return Dropped{DropReason::kNotAllowed};
  if (at(id).state != State::kClaimed) return Dropped{DropReason::kRepeated};
  const std::optional<TokenId> consumer = consumer_of(id);
  set(id, consumer ? State::kHeld : State::kDue);
  if (!consumer || !has_inputs(*consumer)) return Tokens{};
  set(*consumer, State::kReady);
  return Tokens{*consumer};
}

Outcome<TokenPool::Tokens> TokenPool::on_done(WorkerId worker, TokenId id) {
  if (id.level >= shape_.levels() || id.index >= tokens_[id.level].size()) {
    return Dropped{DropReason::kUnknown};
  }
  if (at(id).holder != worker) return Dropped{DropReason::kNotAllowed};
  if (at(id).state == State::kDone) return Dropped{DropReason::kRepeated};
  if (at(id).state != State::kDue) return Dropped{DropReason::kEarly};
  set(id, State::kDone);
  ++done_[id.level];
  Tokens due = inputs_of(id);
  for (TokenId input : due) set(input, State::kDue);
  return due;
}

uint64_t TokenPool::samples_done(uint32_t level, WorkerId worker) const {
  uint64_t samples = 0;
  for (uint32_t index = 0; index < tokens_[level].size(); ++index) {
    const Token& token = tokens_[level][index];
    if (token.state != State::kDone || token.holder != worker) continue;
    samples += samples_of({level, index}).count;
  }
  return samples;
}

void TokenPool::check_invariants() const {
  for (uint32_t level = 0; level < shape_.levels(); ++level) {
    uint32_t done = 0;
    uint64_t samples = 0;
    for (uint32_t index = 0; index < tokens_[level].size(); ++index) {
      const TokenId id{level, index};
      const Token& token = at(id);
      samples += samples_of(id).count;
      done += token.state == State::kDone ? 1 : 0;
      SKEIN_CHECK(token.holder.has_value() == (token.state > State::kReady))
          << level << "." << index;
      SKEIN_CHECK(ready_[level].contains(index) == (token.state == State::kReady))
          << level << "." << index;
      for (TokenId input : inputs_of(id)) {
        const State state = at(input).state;
        const bool fits = token.state == State::kWaiting || state == State::kHeld ||
                          (token.state == State::kDone && state > State::kHeld);
        SKEIN_CHECK(fits) << level << "." << index << " is made of " << input.index;
      }
      if (token.state == State::kWaiting) SKEIN_CHECK(!has_inputs(id)) << level << "." << index;
    }
    SKEIN_CHECK(done == done_[level] && samples == shape_.samples) << "level " << level;
  }
}

}  // namespace skein::plans
