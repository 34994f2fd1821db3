#include "emulator.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace emulated {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kLanes = 32;

enum class State { kRuns, kAtWarp, kAtBlock, kEnded };

struct Fiber {
  ucontext_t begin;  // Where it starts; later switches go by jumps, which need no system call.
  jmp_buf jump;
  bool has_begun = false;
  std::unique_ptr<unsigned char[]> stack;
  State state = State::kRuns;
  Place place;
  int number = 0;  // In the block.
  // Two, as a lane may be at its next meeting before others have read what it left at this one.
  unsigned char left[2][kExchangeBytes];
  int meetings = 0;
};

/// The block that runs. Kernels are launched by one thread at a time.
struct Block {
  jmp_buf scheduler;
  std::vector<std::unique_ptr<Fiber>> fibers;
  size_t count = 0;  // Fibers in use.
  Fiber* running = nullptr;
  const std::function<void()>* thread = nullptr;
  std::vector<unsigned char> shared;
  std::vector<unsigned char> exchanged;  // [warp][2][lane][kExchangeBytes]
};

Block& block() {
  static Block only;
  return only;
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s\n", what);
  std::abort();
}

void fiber_main() {
  (*block().thread)();
  block().running->state = State::kEnded;
  _longjmp(block().scheduler, 1);
}

/// Until it waits or ends.
__attribute__((noinline)) void run_fiber(Fiber* fiber) {
  block().running = fiber;
  if (_setjmp(block().scheduler) != 0) return;
  if (fiber->has_begun) _longjmp(fiber->jump, 1);
  fiber->has_begun = true;
  setcontext(&fiber->begin);
}

__attribute__((noinline)) void wait_as(State state) {
  Fiber* self = block().running;
  self->state = state;
  if (_setjmp(self->jump) == 0) _longjmp(block().scheduler, 1);
}

void prepare(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique<unsigned char[]>(kStackBytes);
  fiber.state = State::kRuns;
  fiber.meetings = 0;
  fiber.has_begun = false;
  getcontext(&fiber.begin);
  fiber.begin.uc_stack.ss_sp = fiber.stack.get();
  fiber.begin.uc_stack.ss_size = kStackBytes;
  fiber.begin.uc_link = nullptr;
  makecontext(&fiber.begin, fiber_main, 0);
}

/// Runs the lanes of one warp until all wait for the block or have ended.
void run_warp(size_t warp) {
  Block& b = block();
  const size_t begin = warp * kLanes, end = std::min(begin + kLanes, b.count);
  while (true) {
    size_t at_warp = 0;
    for (size_t i = begin; i < end; ++i) {
      Fiber& fiber = *b.fibers[i];
      if (fiber.state == State::kRuns) run_fiber(&fiber);
      at_warp += fiber.state == State::kAtWarp ? 1 : 0;
    }
    if (at_warp == 0) return;
    if (at_warp != kLanes) fail("not all lanes of a warp meet");
    for (size_t i = begin; i < end; ++i) {
      Fiber& fiber = *b.fibers[i];
      const size_t row = (warp * 2 + fiber.meetings % 2) * kLanes + i - begin;
      std::memcpy(&b.exchanged[row * kExchangeBytes], fiber.left[fiber.meetings % 2],
                  kExchangeBytes);
      fiber.state = State::kRuns;
    }
  }
}

void run_block() {
  Block& b = block();
  const size_t warps = (b.count + kLanes - 1) / kLanes;
  for (size_t i = 0; i < b.count; ++i) prepare(*b.fibers[i]);
  while (true) {
    for (size_t warp = 0; warp < warps; ++warp) run_warp(warp);
    size_t ended = 0;
    for (size_t i = 0; i < b.count; ++i) {
      Fiber& fiber = *b.fibers[i];
      if (fiber.state == State::kEnded) ++ended;
      if (fiber.state == State::kAtBlock) fiber.state = State::kRuns;
    }
    if (ended == b.count) return;
  }
}

}  // namespace

const Place& place() { return block().running->place; }
int lane() { return block().running->number % kLanes; }
unsigned char* dynamic_shared() { return block().shared.data(); }
void meet_block() { wait_as(State::kAtBlock); }

const unsigned char* meet_warp(const void* mine, int bytes) {
  Fiber* self = block().running;
  const int slot = ++self->meetings % 2;
  std::memcpy(self->left[slot], mine, static_cast<size_t>(bytes));
  wait_as(State::kAtWarp);
  const auto row = static_cast<size_t>((self->number / kLanes * 2 + slot) * kLanes);
  return &block().exchanged[row * kExchangeBytes];
}

void launch(dim3 grid, dim3 threads, int64_t shared_bytes, cudaStream_t,
            const std::function<void()>& thread) {
  Block& b = block();
  b.count = size_t{threads.x} * threads.y * threads.z;
  if (b.count == 0 || b.count > 1024 || grid.x == 0 || grid.y == 0 || grid.y > 65535) {
    fail("a launch of this shape is refused");
  }
  if (shared_bytes > (227 << 10)) fail("a block gets at most 227 KiB of shared memory");
  b.thread = &thread;
  // Rubbish, as on a device.
  b.shared.assign(static_cast<size_t>(shared_bytes), 0xFF);
  b.exchanged.resize((b.count + kLanes - 1) / kLanes * 2 * kLanes * kExchangeBytes);
  while (b.fibers.size() < b.count) b.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      for (size_t i = 0; i < b.count; ++i) {
        Fiber& fiber = *b.fibers[i];
        fiber.number = static_cast<int>(i);
        fiber.place.grid = grid;
        fiber.place.threads = threads;
        fiber.place.block = dim3(x, y, 0);
        fiber.place.thread = dim3(static_cast<unsigned>(i) % threads.x,
                                  static_cast<unsigned>(i) / threads.x % threads.y, 0);
      }
      run_block();
    }
  }
}

}  // namespace emulated
