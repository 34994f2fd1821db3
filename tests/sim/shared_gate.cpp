#include "tests/sim/shared_gate.hpp"

#include "absl/strings/str_cat.h"

namespace skein::sim {
void TurnLog::on_pass(const Pass& pass, uint64_t position) {
  const auto [known, is_new] = positions_.emplace(pass, position);
  if (is_new || known->second == position) return;
  fail_(absl::StrCat("the pass of step ", pass.step, " has its turn at ", position, " here and at ",
                     known->second, " elsewhere"));
}

class SharedGate::Share final : public actors::DeviceShare {
 public:
  Share(std::weak_ptr<SharedGate> gate, uint64_t job) : gate_(std::move(gate)), job_(job) {}
  ~Share() override {
    if (const auto gate = gate_.lock()) gate->remove(job_);
  }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  void enter(uint64_t position) override {
    if (const auto gate = gate_.lock()) gate->enter(job_, position);
  }
  void leave() override {
    if (const auto gate = gate_.lock()) gate->leave(job_);
  }
  void change(const plans::SharingSpec& sharing) override {
    const auto gate = gate_.lock();
    if (!gate || !gate->turns_.has(job_)) return;
    gate->priorities_[job_] = sharing.priority;
    gate->turns_.change({job_, sharing.priority, sharing.weight}, gate->world_.now_us());
  }
  void begin_passes() override {
    const auto gate = gate_.lock();
    if (gate && gate->turns_.has(job_)) gate->turns_.begin_passes(job_);
  }
  void end_passes() override {
    if (const auto gate = gate_.lock()) gate->end_passes(job_);
  }
  bool is_waiting() const override {
    const auto gate = gate_.lock();
    return gate && gate->turns_.has(job_) && gate->turns_.is_waiting(job_);
  }
  plans::TurnReport report() const override {
    const auto gate = gate_.lock();
    if (!gate || !gate->turns_.has(job_)) return {};
    return {gate->turns_.head(job_), gate->turns_.takes_turns(job_)};
  }

 private:
  const std::weak_ptr<SharedGate> gate_;
  const uint64_t job_;
};

std::shared_ptr<actors::DeviceShare> SharedGate::join(const plans::DeviceJob& job) {
  if (turns_.has(job.number)) turns_.remove(job.number);
  turns_.add(job);
  priorities_[job.number] = job.priority;
  return std::make_shared<Share>(weak_from_this(), job.number);
}

void SharedGate::remove(uint64_t job) {
  works_.erase(job);
  if (!turns_.has(job)) return;
  turns_.remove(job);
  advance();
}

void SharedGate::enter(uint64_t job, uint64_t position) {
  if (!turns_.has(job)) return;
  const bool is_by_clock = mutation_ == Mutation::kTurnByClock;
  turns_.enter(job, is_by_clock ? turns_.head(job) + plans::kTurnUnit : position, world_.now_us());
  advance();
}

void SharedGate::leave(uint64_t job) {
  if (!turns_.has(job) || mutation_ == Mutation::kTurnKept) return;
  turns_.leave(job, world_.now_us());
  advance();
}

void SharedGate::end_passes(uint64_t job) {
  if (!turns_.has(job) || mutation_ == Mutation::kTurnKept) return;
  turns_.end_passes(job, world_.now_us());
  advance();
}

void SharedGate::request(uint64_t job, const plans::DevicePieceNeed& need) {
  if (!turns_.has(job)) return;
  turns_.request(job, need, world_.now_us());
  advance();
}

void SharedGate::end(uint64_t job) {
  turns_.end(job, world_.now_us());
  advance();
}

void SharedGate::on_quiesced(uint64_t job) {
  if (!turns_.has(job) || !turns_.takes_turns(job)) return;
  log_.fail("a job that has quiesced keeps its turns");
}

void SharedGate::advance() {
  turns_.check_invariants();
  if (const auto next = turns_.start(world_.now_us())) {
    note_pass(*next);
    const auto work = works_.find(*next);
    if (work != works_.end()) work->second.start();
  }
  if (const auto wake_us = turns_.wake_us()) {
    const uint64_t now = world_.now_us();
    world_.at(std::max(*wake_us, now + 1), 0, [weak = weak_from_this(), wake = ++wakes_] {
      const auto gate = weak.lock();
      if (gate && gate->wakes_ == wake) gate->advance();
    });
  }
}

/// What has just begun may be of a pass in its turn.
void SharedGate::note_pass(uint64_t job) {
  const auto work = works_.find(job);
  const auto position = turns_.position(job);
  const int32_t step = work == works_.end() ? -1 : work->second.step();
  if (!position || step < 0) return;
  const std::pair<uint64_t, uint64_t> turn = {*position, job};
  auto& last = last_[priorities_.at(job)];
  if (turn < last) log_.fail(absl::StrCat("a turn at ", *position, " after one at ", last.first));
  last = turn;
  if (work->second.is_synchronous) {
    log_.on_pass({job, work->second.generation(), step}, *position);
  }
}

}  // namespace skein::sim
