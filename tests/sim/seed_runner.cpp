#include "tests/sim/seed_runner.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

/// One seed in so many is run twice and must go alike.
constexpr uint64_t kRepeatEvery = 20;
/// One pair of jobs in so many has no faults, so that bits can be compared.
constexpr uint64_t kCalmEvery = 7;
constexpr size_t kTextMax = 400;

/// What a child tells of a seed, as bytes in a pipe.
struct Result {
  uint64_t seed = 0;
  uint64_t events = 0;
  double virtual_seconds = 0;
  std::array<int, kFaultKinds> injected{};
  RecoveryCounts recoveries;
  bool failed = false;
  bool repeated = false;
  bool compared_bits = false;
  char what[kTextMax] = {};
};
static_assert(sizeof(Result) < 4096, "a write of a pipe that is not torn");

Result run_seed(uint64_t seed, const RunnerOptions& runner) {
  const Scenario scenario = make_scenario(seed, runner.policy, runner.is_dense);
  RunOptions options;
  options.mutation = runner.mutation;
  const Outcome outcome = run_as(runner, scenario, options);
  std::optional<std::string> failure = outcome.failure;
  Result result;
  result.seed = seed;
  if (!failure && seed % kRepeatEvery == 0) {
    result.repeated = true;
    const Outcome again = run_as(runner, scenario, options);
    if (again.hash != outcome.hash || again.events != outcome.events) {
      failure = absl::StrCat("two runs of one seed differ: ", outcome.events, " and ", again.events,
                             " events");
    }
  }
  result.events = outcome.events;
  result.virtual_seconds = outcome.virtual_seconds;
  result.injected = outcome.injected;
  result.recoveries = outcome.recoveries;
  result.compared_bits = outcome.compared_bits;
  result.failed = failure.has_value();
  if (failure) std::strncpy(result.what, failure->c_str(), kTextMax - 1);
  return result;
}

/// A process that runs every `stride`-th seed from `next` on.
struct Child {
  pid_t pid = 0;
  int pipe = -1;
  uint64_t next = 0;  // The seed that it works on.
};

void child_main(int out, uint64_t seed, const RunnerOptions& options) {
  for (; seed <= options.seeds.last; seed += static_cast<uint64_t>(options.jobs)) {
    const Result result = run_seed(seed, options);
    if (write(out, &result, sizeof(result)) != sizeof(result)) break;
  }
  std::fflush(nullptr);
  _exit(0);
}

Child start_child(uint64_t seed, const RunnerOptions& options) {
  int ends[2];
  SKEIN_CHECK(pipe(ends) == 0) << "no pipe";
  std::fflush(nullptr);
  const pid_t pid = fork();
  SKEIN_CHECK(pid >= 0) << "no process";
  if (pid == 0) {
    close(ends[0]);
    child_main(ends[1], seed, options);
  }
  close(ends[1]);
  return {pid, ends[0], seed};
}

void add(Summary& summary, const Result& result) {
  ++summary.seeds;
  summary.events += result.events;
  summary.virtual_seconds += result.virtual_seconds;
  summary.repeated += result.repeated ? 1 : 0;
  summary.compared_bits += result.compared_bits ? 1 : 0;
  for (size_t i = 0; i < kFaultKinds; ++i) {
    summary.injected[i] += static_cast<uint64_t>(result.injected[i]);
  }
  summary.recoveries.add(result.recoveries);
  if (result.failed) summary.failures.push_back({result.seed, result.what});
}

std::string death_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) return absl::StrCat("the program died of signal ", WTERMSIG(status));
  return absl::StrCat("the program ended with code ", WEXITSTATUS(status));
}

}  // namespace

Outcome run_as(const RunnerOptions& runner, const Scenario& scenario, const RunOptions& options) {
  if (!runner.is_shared) return run_and_compare(scenario, options);
  Scenario first = scenario;
  first.device_bytes = 0;  // Both have one device.
  if (scenario.seed % kCalmEvery == 0) first.faults.clear();
  return run_shared(first, companion_of(first), options);
}

Summary run_seeds(const RunnerOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Summary summary;
  std::vector<Child> children;
  for (int i = 0; i < options.jobs; ++i) {
    const uint64_t seed = options.seeds.first + static_cast<uint64_t>(i);
    if (seed <= options.seeds.last) children.push_back(start_child(seed, options));
  }
  auto is_over = [&] {
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    return (options.limit_seconds > 0 && taken > options.limit_seconds) ||
           (options.stops_at_failure && !summary.failures.empty());
  };
  while (!children.empty() && !is_over()) {
    std::vector<pollfd> waiting;
    for (const Child& child : children) waiting.push_back({child.pipe, POLLIN, 0});
    poll(waiting.data(), waiting.size(), 1000);
    for (size_t i = children.size(); i-- > 0;) {
      if (waiting[i].revents == 0) continue;
      Child& child = children[i];
      Result result;
      if (read(child.pipe, &result, sizeof(result)) == sizeof(result)) {
        add(summary, result);
        child.next += static_cast<uint64_t>(options.jobs);
        continue;
      }
      close(child.pipe);
      const std::string death = death_of(child.pid);
      const uint64_t seed = child.next;
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      if (seed > options.seeds.last) continue;
      summary.failures.push_back({seed, death});
      ++summary.seeds;
      const uint64_t next = seed + static_cast<uint64_t>(options.jobs);
      if (next <= options.seeds.last) children.push_back(start_child(next, options));
    }
  }
  for (const Child& child : children) {
    kill(child.pid, SIGKILL);
    close(child.pipe);
    death_of(child.pid);
  }
  std::sort(summary.failures.begin(), summary.failures.end(),
            [](const auto& a, const auto& b) { return a.seed < b.seed; });
  return summary;
}

Scenario with_faults(const Scenario& scenario, const std::vector<size_t>& kept) {
  Scenario fewer = scenario;
  fewer.faults.clear();
  for (size_t position : kept) {
    if (position < scenario.faults.size()) fewer.faults.push_back(scenario.faults[position]);
  }
  return fewer;
}

namespace {

bool fails(const Scenario& scenario, const RunnerOptions& runner) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  SKEIN_CHECK(pid >= 0) << "no process";
  if (pid == 0) {
    RunOptions options;
    options.mutation = runner.mutation;
    _exit(run_as(runner, scenario, options).failure ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace

std::vector<size_t> shrink(const Scenario& scenario, const RunnerOptions& runner) {
  std::vector<size_t> kept(scenario.faults.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
  for (size_t i = kept.size(); i-- > 0;) {
    std::vector<size_t> fewer = kept;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    if (fails(with_faults(scenario, fewer), runner)) kept = std::move(fewer);
  }
  return kept;
}

}  // namespace skein::sim
