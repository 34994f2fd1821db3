#include "cli/run/chaos_runner.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

using FaultActions = std::vector<std::string>;

/// A run without processes: what is done to it is written down.
struct ChaosRunnerTest : testing::Test {
  std::unique_ptr<ChaosRunner> runner(const char* script) {
    ChaosHands hands;
    hands.processes = [this] { return processes; };
    hands.signal = [this](uint32_t process, int signal) {
      if (!refusal.ok()) return refusal;
      fault_actions.push_back(absl::StrCat("signal ", signal, " to ", process));
      return absl::OkStatus();
    };
    hands.kill_coordinator = [this] { fault_actions.push_back("kill coordinator"); };
    hands.set_speed = [this](plans::WorkerId worker, double speed) {
      fault_actions.push_back(absl::StrCat("w", worker.value, " at ", speed));
    };
    hands.drop_link = [this](plans::WorkerId worker, plans::WorkerId to, double seconds) {
      fault_actions.push_back(
          absl::StrCat("w", worker.value, " to w", to.value, " off for ", seconds));
    };
    hands.add_worker = [this] {
      if (refusal.ok()) fault_actions.push_back("add worker");
      return refusal;
    };
    hands.say = [this](const std::string& line) { lines.push_back(line); };
    return std::make_unique<ChaosRunner>(plans::parse_chaos(script).value(), std::move(hands));
  }

  std::map<plans::WorkerId, uint32_t> processes = {{{1}, 101}, {{2}, 102}};
  absl::Status refusal;
  FaultActions fault_actions;
  FaultActions lines;
};

std::string signal_text(int signal, uint32_t process) {
  return absl::StrCat("signal ", signal, " to ", process);
}

TEST_F(ChaosRunnerTest, CountsTimeFromTheFirstStep) {
  auto chaos = runner("w2:kill@30s");
  chaos->poll({1000, false, 0});
  chaos->poll({1100, true, 0});
  chaos->poll({1129.9, true, 40});
  EXPECT_EQ(fault_actions, FaultActions{});
  // A change of plan stops the steps, not the clock.
  chaos->poll({1130.04, false, 41});
  EXPECT_EQ(fault_actions, FaultActions{signal_text(SIGKILL, 102)});
  EXPECT_EQ(lines, FaultActions{"chaos: w2 killed at 30.0 s, step 41"});
}

TEST_F(ChaosRunnerTest, StartsAnotherWorkerOrSaysWhyNot) {
  auto chaos = runner("another:join@1s;another:join@2s");
  chaos->poll({0, true, 0});
  chaos->poll({1, true, 0});
  EXPECT_EQ(fault_actions, FaultActions{"add worker"});
  EXPECT_EQ(lines, FaultActions{"chaos: another worker starts at 1.0 s, step 0"});
  refusal = absl::UnavailableError("no room");
  chaos->poll({2, true, 0});
  EXPECT_EQ(lines.back(),
            "chaos: could not do \"another worker starts\" at 2.0 s, step 0: no room");
}

TEST_F(ChaosRunnerTest, DoesEveryFaultActionToWhomItIsMeant) {
  auto chaos = runner(
      "w1:slow=4x@1s;w2:term@2s;link(w1,w2):drop=3s@3s;w1:pause=1s@step=5;coordinator:kill@step=6");
  chaos->poll({0, true, 0});
  chaos->poll({1, true, 1});
  chaos->poll({2, true, 2});
  chaos->poll({3, true, 3});
  chaos->poll({4, true, 5});
  chaos->poll({5, true, 5});
  chaos->poll({6, true, 6});
  EXPECT_EQ(fault_actions,
            (FaultActions{"w1 at 0.25", signal_text(SIGTERM, 102), "w1 to w2 off for 3",
                          "w2 to w1 off for 3", signal_text(SIGSTOP, 101),
                          signal_text(SIGCONT, 101), "kill coordinator"}));
  EXPECT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.back(), "chaos: the coordinator killed at 6.0 s, step 6");
}

TEST_F(ChaosRunnerTest, SaysWhatCouldNotBeDone) {
  auto chaos = runner("w9:kill@1s;w9:slow=2x@1s;link(w1,w9):drop@1s;w1:kill@2s");
  chaos->poll({0, true, 0});
  chaos->poll({1, true, 7});
  refusal = absl::UnavailableError("it is gone");
  chaos->poll({2, true, 7});
  EXPECT_EQ(fault_actions, FaultActions{});
  EXPECT_EQ(lines,
            (FaultActions{
                "chaos: could not do \"w9 killed\" at 1.0 s, step 7: w9 has not joined the run",
                "chaos: could not do \"w9 runs 2x slower\" at 1.0 s, step 7: w9 is not a member "
                "of the run",
                "chaos: could not do \"link of w1 and w9 dropped for ever\" at 1.0 s, step 7: "
                "w9 is not a "
                "member of the run",
                "chaos: could not do \"w1 killed\" at 2.0 s, step 7: it is gone"}));
}

TEST_F(ChaosRunnerTest, AWorkerThatIsLostWhilePausedGoesOnAllTheSame) {
  auto chaos = runner("w2:pause=60s@0s");
  chaos->poll({0, true, 0});
  processes.erase({2});
  chaos->poll({60, true, 9});
  EXPECT_EQ(fault_actions, (FaultActions{signal_text(SIGSTOP, 102), signal_text(SIGCONT, 102)}));
}

TEST_F(ChaosRunnerTest, LeavesNobodyStopped) {
  auto chaos = runner("w1:pause=60s@0s;w2:pause=60s@0s;w2:kill@1s");
  chaos->poll({0, true, 0});
  chaos->poll({1, true, 0});
  fault_actions.clear();
  chaos.reset();
  EXPECT_EQ(fault_actions, FaultActions{signal_text(SIGCONT, 101)});
}

TEST_F(ChaosRunnerTest, AWorkerThatJoinsLaterIsFound) {
  auto chaos = runner("w3:kill@5s");
  chaos->poll({0, true, 0});
  processes[{3}] = 103;
  chaos->poll({5, true, 1});
  EXPECT_EQ(fault_actions, FaultActions{signal_text(SIGKILL, 103)});
}

/// As /proc writes them.
std::string command(std::vector<std::string> words) {
  std::string text;
  for (const std::string& word : words) text += word + '\0';
  return text;
}

TEST(IsWorkerOf, KnowsTheWorkersOfARunByVerbAndPort) {
  const std::string address = "127.0.0.1:29400";
  EXPECT_TRUE(is_worker_of(command({"skein", "worker", "--join", address}), address));
  EXPECT_TRUE(is_worker_of(
      command({"/usr/bin/skein", "worker", "--threads", "2", "--join=localhost:29400"}), address));
  EXPECT_FALSE(is_worker_of(command({"skein", "worker", "--join", "127.0.0.1:9400"}), address));
  EXPECT_FALSE(is_worker_of(command({"skein", "coordinator", "--join", address}), address));
  EXPECT_FALSE(is_worker_of(command({"skein", "worker", "--bind", address}), address));
  EXPECT_FALSE(is_worker_of(command({"skein", "worker", "--join"}), address));
  EXPECT_FALSE(is_worker_of(command({"skein"}), address));
  EXPECT_FALSE(is_worker_of("", address));
}

TEST(SignalWorker, SparesProcessesThatAreNoWorkers) {
  const auto self = static_cast<uint32_t>(getpid());
  EXPECT_TRUE(absl::IsFailedPrecondition(signal_worker(self, SIGKILL, "127.0.0.1:29400")));
  EXPECT_TRUE(absl::IsUnavailable(signal_worker(4'000'000'000U, SIGKILL, "127.0.0.1:29400")));
}

}  // namespace
}  // namespace skein::cli
