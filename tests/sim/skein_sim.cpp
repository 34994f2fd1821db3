// Deterministic simulation of whole runs with faults; README.md says how to use it.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plans/sync/policy_kind.hpp"
#include "tests/sim/seed_runner.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::sim {
namespace {

constexpr const char* kUsage =
    "skein-sim --seed N [--faults 0,2] [--trace]     one run\n"
    "skein-sim --seeds A..B [--jobs 2] [--limit S]   many, at most S seconds\n"
    "  --policy NAME                  a sync.policy: tokens, or pipeline replicas under local "
    "updates\n"
    "  --policy third-mode            a training mode that the product does not have\n"
    "  --dense                        with a policy: faults in bursts\n"
    "  --shared                       with another job on the same machines\n"
    "  --mutate commit-before-journal|stale-generation|lease-ignored|run-ignored|config-kept\n"
    "           snapshot-step-ignored|rewind-skipped|left-ignored|fence-skipped   a broken "
    "protocol\n"
    "           closed-is-dead         a worker whose connection has ended is taken for dead\n"
    "           seals-skipped          layers that move lose a bit, and nobody looks\n"
    "           models-kept            what a worker holds stays on a device that is full\n"
    "           full-forgotten         that a worker cannot go on is not heard\n"
    "           complete-torn          a death tears a checkpoint that is complete\n"
    "           digests-skipped        checkpoints are loaded without a look at their digests\n"
    "           turn-kept|turn-by-clock   of jobs that share machines\n"
    "           abort-skipped|returned-lost|sum-skewed|samples-repeated   of a policy's "
    "pipeline replicas\n"
    "           claim-kept             of steps by tokens\n"
    "  --expect-failure    stop at the first failure, and fail if there is none\n";
constexpr size_t kFailuresShown = 20;
constexpr size_t kFailuresShrunk = 3;

struct Arguments {
  std::optional<uint64_t> seed;
  std::optional<std::vector<size_t>> faults;
  bool traces = false;
  bool expects_failure = false;
  RunnerOptions runner;
  std::string mutation;
};

const std::map<std::string, Mutation> kMutations = {
    {"commit-before-journal", Mutation::kCommitBeforeJournal},
    {"stale-generation", Mutation::kStaleGeneration},
    {"lease-ignored", Mutation::kLeaseIgnored},
    {"digests-skipped", Mutation::kDigestsSkipped},
    {"snapshot-step-ignored", Mutation::kSnapshotStepIgnored},
    {"rewind-skipped", Mutation::kRewindSkipped},
    {"run-ignored", Mutation::kRunIgnored},
    {"config-kept", Mutation::kConfigKept},
    {"models-kept", Mutation::kModelsKept},
    {"full-forgotten", Mutation::kFullForgotten},
    {"left-ignored", Mutation::kLeftIgnored},
    {"complete-torn", Mutation::kCompleteTorn},
    {"fence-skipped", Mutation::kFenceSkipped},
    {"seals-skipped", Mutation::kSealsSkipped},
    {"closed-is-dead", Mutation::kClosedIsDead},
    {"turn-kept", Mutation::kTurnKept},
    {"turn-by-clock", Mutation::kTurnByClock},
    {"abort-skipped", Mutation::kAbortSkipped},
    {"returned-lost", Mutation::kReturnedLost},
    {"sum-skewed", Mutation::kSumSkewed},
    {"samples-repeated", Mutation::kSamplesRepeated},
    {"claim-kept", Mutation::kClaimKept},
};

bool parse_seeds(const std::string& text, SeedRange& seeds) {
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  return ends.size() == 2 && absl::SimpleAtoi(ends[0], &seeds.first) &&
         absl::SimpleAtoi(ends[1], &seeds.last) && seeds.first <= seeds.last;
}

bool parse_faults(const std::string& text, std::vector<size_t>& faults) {
  for (const auto& each : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(each, &faults.emplace_back())) return false;
  }
  return true;
}

/// False if `flag` is unknown or its value does not fit.
bool parse_flag(const std::string& flag, const std::string& value, Arguments& arguments) {
  if (flag == "--seed") return absl::SimpleAtoi(value, &arguments.seed.emplace());
  if (flag == "--seeds") return parse_seeds(value, arguments.runner.seeds);
  if (flag == "--faults") return parse_faults(value, arguments.faults.emplace());
  if (flag == "--jobs") return absl::SimpleAtoi(value, &arguments.runner.jobs);
  if (flag == "--policy") {
    arguments.runner.policy = value;
    return value == kThirdMode || plans::parse_policy_kind(value).ok();
  }
  if (flag == "--limit") return absl::SimpleAtod(value, &arguments.runner.limit_seconds);
  if (flag != "--mutate" || !kMutations.contains(value)) return false;
  arguments.mutation = value;
  arguments.runner.mutation = kMutations.at(value);
  return true;
}

bool parse(const std::vector<std::string>& words, Arguments& arguments) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--trace") {
      arguments.traces = true;
    } else if (words[i] == "--dense") {
      arguments.runner.is_dense = true;
    } else if (words[i] == "--shared") {
      arguments.runner.is_shared = true;
    } else if (words[i] == "--expect-failure") {
      arguments.expects_failure = arguments.runner.stops_at_failure = true;
    } else if (i + 1 == words.size() || !parse_flag(words[i], words[i + 1], arguments)) {
      return false;
    } else {
      ++i;
    }
  }
  return arguments.seed.has_value() != (arguments.runner.seeds.last > 0);
}

int run_one(const Arguments& arguments) {
  Scenario scenario =
      make_scenario(*arguments.seed, arguments.runner.policy, arguments.runner.is_dense);
  if (arguments.faults) scenario = with_faults(scenario, *arguments.faults);
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(scenario.seed),
              scenario.shape.c_str());
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    std::printf("  fault %zu: %s\n", i, to_text(scenario.faults[i]).c_str());
  }
  RunOptions options;
  options.traces = arguments.traces;
  options.mutation = arguments.runner.mutation;
  const Outcome outcome = run_as(arguments.runner, scenario, options);
  std::printf("%s: %llu events, %.1f virtual seconds, trace %016llx\n",
              outcome.failure ? outcome.failure->c_str() : "ok",
              static_cast<unsigned long long>(outcome.events), outcome.virtual_seconds,
              static_cast<unsigned long long>(outcome.hash));
  return outcome.failure ? 1 : 0;
}

void print(const Summary& summary) {
  std::printf(
      "%llu seeds, %llu events, %.0f virtual seconds; %llu run twice and alike, %llu with "
      "the bits of a calm run\n",
      static_cast<unsigned long long>(summary.seeds),
      static_cast<unsigned long long>(summary.events), summary.virtual_seconds,
      static_cast<unsigned long long>(summary.repeated),
      static_cast<unsigned long long>(summary.compared_bits));
  std::vector<std::string> faults;
  for (int i = 0; i < kFaultKinds; ++i) {
    faults.push_back(absl::StrCat(summary.injected[static_cast<size_t>(i)], " ",
                                  to_text(static_cast<FaultKind>(i))));
  }
  std::printf("faults: %s\n", absl::StrJoin(faults, ", ").c_str());
  const RecoveryCounts& recoveries = summary.recoveries;
  std::printf(
      "plans: %d in %d terms, %d of pipeline replicas with cuts of their own; state: %d kept in "
      "full, %d snapshots, %d checkpoints; %d "
      "commits\n",
      recoveries.generations, recoveries.terms, recoveries.own_cuts, recoveries.kept,
      recoveries.snapshot, recoveries.checkpoint, recoveries.commits);
}

void print_failures(const Arguments& arguments, const Summary& summary) {
  const RunnerOptions& runner = arguments.runner;
  std::string flags;
  if (runner.policy != "allreduce") absl::StrAppend(&flags, " --policy ", runner.policy);
  if (runner.is_dense) absl::StrAppend(&flags, " --dense");
  if (runner.is_shared) absl::StrAppend(&flags, " --shared");
  if (!arguments.mutation.empty()) absl::StrAppend(&flags, " --mutate ", arguments.mutation);
  for (size_t i = 0; i < summary.failures.size() && i < kFailuresShown; ++i) {
    const SeedFailure& failure = summary.failures[i];
    std::string command = absl::StrCat("skein-sim --seed ", failure.seed, flags);
    if (i < kFailuresShrunk) {
      const auto kept = shrink(make_scenario(failure.seed, runner.policy, runner.is_dense), runner);
      absl::StrAppend(&command, " --faults ", kept.empty() ? "," : absl::StrJoin(kept, ","));
    }
    std::printf("FAILED %s\n  replay: %s --trace\n", failure.what.c_str(), command.c_str());
  }
  std::printf("%zu of %llu seeds failed\n", summary.failures.size(),
              static_cast<unsigned long long>(summary.seeds));
}

int run_many(const Arguments& arguments) {
  const Summary summary = run_seeds(arguments.runner);
  print(summary);
  print_failures(arguments, summary);
  return summary.failures.empty() == arguments.expects_failure ? 1 : 0;
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  // Checkpoints are real files that are synced: on a disk that would take most of the time.
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);
  // What a child that is killed leaves behind goes with this one.
  const skein::tests::TemporaryFolder folder;
  setenv("TMPDIR", folder.path().c_str(), /*overwrite=*/1);
  skein::sim::Arguments arguments;
  if (!skein::sim::parse({argv + 1, argv + argc}, arguments)) {
    std::fputs(skein::sim::kUsage, stderr);
    return 2;
  }
  return arguments.seed ? skein::sim::run_one(arguments) : skein::sim::run_many(arguments);
}
