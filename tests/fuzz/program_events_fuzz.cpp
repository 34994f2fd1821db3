// Bytes as a sequence of events for a worker's program: orders of the coordinator, inputs from
// neighbours and the ends of the device's work, in any order, with any numbers. The full sweep of
// invariants runs after each event, and the device is never given more than the program has.
#include <memory>
#include <variant>

#include "plans/base/rng.hpp"
#include "plans/schedule/schedule.hpp"
#include "plans/worker/async_program.hpp"
#include "plans/worker/local_program.hpp"
#include "plans/worker/step_program.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {
namespace {

constexpr int32_t kMicrobatches = 2;
constexpr uint64_t kStepsMax = uint64_t{1} << 48;  // As in net/codec/bounds.hpp.
/// A program that goes on by itself for longer than this never stops.
constexpr size_t kWorkMax = 1000;

std::unique_ptr<plans::WorkerProgram> make_program(uint8_t variant) {
  plans::ProgramOptions options;
  const bool is_middle = variant % 3 == 0;
  const auto shape = plans::straight_shape(is_middle ? 3 : 1, kMicrobatches);
  const auto lists = plans::make_schedule(plans::ScheduleKind::k1F1B, shape);
  options.actions = lists->at(is_middle ? 1 : 0);
  if (is_middle) {
    options.stages = {{.stage = 1}};
  } else {
    options.stages = {{.stage = 0, .is_first = true, .is_last = true, .leads = true}};
  }
  options.first_step = variant % 2;
  options.validation_batches = 2;
  options.samples_per_step = 4;
  options.microbatch_rows = 2;
  if (variant / 64 == 3) {  // Several claims in flight.
    options.stage_count = is_middle ? 3 : 1;
    options.passes_in_flight = 2;
    options.stages.front().bucket_count = 1 + variant / 8 % 2;
    return std::make_unique<plans::AsyncProgram>(std::move(options));
  }
  if (variant % 3 == 2) return std::make_unique<plans::LocalProgram>(std::move(options));
  return std::make_unique<plans::StepProgram>(std::move(options));
}

class World {
 public:
  World(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {
    const uint8_t variant = next();
    program_ = make_program(variant);
    stage_ = variant % 3 == 0 ? 1 : 0;
    if (next() % 16 != 0) take(program_->on_start(commit()));
  }

  void run() {
    while (left_ > 0) {
      const uint8_t kind = next() % 24;
      if (kind >= 12 && running_ > 0) {
        --running_;
        take(program_->on_work_done());
      } else {
        hear(kind % 12);
      }
    }
  }

 private:
  uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  /// Near the step in progress, seldom far from it.
  uint64_t step() {
    const uint8_t value = next();
    return value < 248 ? program_->steps_done() + value % 3 : kStepsMax - value % 2;
  }
  int32_t small() { return next() % 4; }
  bool flag() { return next() % 4 == 0; }

  plans::CommitOrder commit() {
    plans::CommitOrder order;
    order.step = step();
    order.validate = next() % 8 == 0;
    order.checkpoint = flag();
    order.last = next() % 64 == 0;
    order.snapshot = flag();
    order.profile = flag();
    return order;
  }

  void hear(uint8_t kind) {
    switch (kind) {
      case 4:
        return take(program_->on_start(commit()));
      case 5:
        return take(program_->on_commit(commit()));
      case 6:
        return take(program_->on_group_reduced({next() % 3u}, step(), small()));
      case 7:
        return take(program_->on_claim({step(), {step() * 4, next() % 5u}}));
      case 8: {
        plans::UpdateOrder order;
        order.step = step();
        if (flag()) order.next = plans::SampleClaim{step() * 4, 1 + next() % 5u};
        return take(program_->on_update(order));
      }
      case 9: {
        plans::AverageOrder order;
        order.stage = stage_;
        order.number = next() % 8;
        order.is_alone = flag();
        order.is_closing = flag();
        order.is_global = order.is_closing && flag();
        order.steps_done = step();
        return take(program_->on_average(order));
      }
      case 10:
        return take(program_->on_averaged(stage_, next() % 8, flag()));
      default: {
        const auto input = static_cast<plans::InputKind>(next() % 3);
        return take(program_->on_input({input, step(), small(), small()}));
      }
    }
  }

  void take(const plans::ProgramOutcome& outcome) {
    program_->check_invariants();
    for (const plans::ProgramCommand& command : outcome.decisions()) {
      running_ += std::holds_alternative<plans::RunAction>(command) ||
                          std::holds_alternative<plans::RunNorm>(command) ||
                          std::holds_alternative<plans::RunUpdate>(command) ||
                          std::holds_alternative<plans::RunValidation>(command)
                      ? 1
                      : 0;
    }
    if (running_ > kWorkMax) __builtin_trap();
  }

  const uint8_t* data_;
  size_t left_;
  std::unique_ptr<plans::WorkerProgram> program_;
  int32_t stage_ = 0;   // That is here.
  size_t running_ = 0;  // Pieces of work that the device has.
};

}  // namespace

void run_one(const uint8_t* data, size_t bytes) { World(data, bytes).run(); }

size_t short_run() { return 20'000; }

std::vector<std::vector<uint8_t>> seeds() {
  plans::Rng rng(16);
  std::vector<std::vector<uint8_t>> all;
  for (uint8_t i = 0; i < 12; ++i) {
    std::vector<uint8_t>& bytes = all.emplace_back(2000);
    for (uint8_t& each : bytes) each = static_cast<uint8_t>(rng.bits());
    bytes[0] = i;  // Each of the programs.
  }
  return all;
}

}  // namespace skein::fuzz
