#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plans/job/job_spec.hpp"

namespace skein::sim {

enum class FaultKind {
  kCrash,             // A worker's process dies; its connections are reset.
  kVanish,            // A worker's machine dies: its connections stay half open.
  kCrashCoordinator,  // And it is started anew after `duration_us`.
  kPause,             // A worker does nothing for `duration_us`: SIGSTOP, then SIGCONT.
  kPauseCoordinator,
  kSlow,              // A worker's device has a fraction of its speed for `duration_us`.
  kPartition,         // No bytes between two workers for `duration_us`.
  kIsolate,           // No bytes between a worker and the coordinator for `duration_us`.
  kHalfOpen,          // A worker's control connection goes silent.
  kDropLink,          // Data connections between two workers break, and cannot be made for a while.
  kJoin,              // A new worker comes.
  kDrain,             // A worker is told to leave.
  kDamage,            // A bit flips in a stored copy of state.
  kDamageCheckpoint,  // A number is changed in the newest complete checkpoint, or the next.
  kLoseShard,         // The next shard of a checkpoint goes where nobody else sees it.
  kStall,      // The coordinator does nothing for `duration_us`, nor does a worker for part of it.
  kRestart,    // As kCrashCoordinator, with a worker that does nothing until a while after it.
  kFullDisk,   // Nothing can be written to the journal for `duration_us`.
  kOtherJob,   // The coordinator dies; until it is started anew another run's listens in its place.
  kOtherKeys,  // The coordinator dies, and is started anew with another configuration.
  kCrashLoop,  // New processes join one after the other and die soon, for `duration_us`.
  kBlackhole,  // No bytes between two workers, as long as both live.
  kPowerCut,   // As kCrashCoordinator, and the newest entries of the journal are lost, or all.
  kAbandon,    // As kCrashCoordinator, for longer than workers wait.
  kStandstill,  // As kPauseCoordinator, for longer than workers wait.
  kOneWay,  // Bytes of a worker to or from another one, or the coordinator, are lost for a while.
  kLastingOneWay,  // And as long as both live.
  kMute,           // A worker's control connection goes silent in one direction.
  kFullRunDisk,    // Nothing can be written to the run folder for a while, nor to the journal in
                   // some.
  kTear,           // A file of a checkpoint is shorter than its writer has reported.
  kHostDown,       // All workers of a worker's host die.
  kHostCut,        // No bytes between a worker's host and all others for `duration_us`.
  kSecond,       // The coordinator is paused, and another one started; then the first one wakes up.
  kStranger,     // Somebody connects, joins or not, and says what is not so for `duration_us`.
  kResetLink,    // The control connection of a worker, or of all, breaks, and both ends hear of it.
  kStop,         // The run is told to stop, and is resumed when it has.
  kMisread,      // A worker gets errors instead of samples, from now on.
  kNoMemory,     // A worker's device has no memory for another plan, from now on.
  kAllDown,      // The coordinator and all workers die; new ones come after `duration_us`.
  kCutShort,     // A process dies between two operations on files, or loses power there.
  kDeviceFails,  // Work on a worker's device fails from now on.
  kDeviceHangs,  // A piece of work on a worker's device never ends.
  kOrphanGroup,  // The coordinator, or a member, dies while a group forms or adds up.
};
inline constexpr int kFaultKinds = 43;

const char* to_text(FaultKind kind);
/// Whether it happens to a worker that lives.
bool needs_worker(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kCrash;
  uint64_t at_us = 0;  // Since the start.
  uint64_t duration_us = 0;
  uint64_t target = 0;   // Modulo the number of workers that live then.
  uint64_t other = 0;    // Used for pairs.
  uint64_t variant = 0;  // In which of a kind's forms.
};

/// One run: a job, workers, and what goes wrong.
struct Scenario {
  uint64_t seed = 0;
  plans::JobSpec job;
  int64_t worker_count = 0;
  int64_t host_count = 0;  // That workers are spread over; 0: all have one name, and no other tie.
  uint64_t tensor_us_max = 0;       // That a tensor takes between two workers.
  uint64_t disk_us_max = 0;         // That the files of a stage, or a checkpoint, take.
  double late_chance = 0.01;        // That what travels is late.
  double elsewhere_chance = 0;      // That a worker does not see the run's folder.
  std::vector<Fault> faults;        // By time; behind them those of identities and disks.
  std::string shape;                // The job's, in words.
  int64_t memory_bytes = 0;         // That plans count on for a worker; 0: not limited.
  bool owns_workers = false;        // The coordinator's process has started them: they die with it.
  int64_t device_bytes = 0;         // That the device of a worker has; 0: as much as is asked for.
  bool has_third_mode = false;      // Trains in the mode of `third_mode.hpp`.
  bool payloads_take_time = false;  // Tensors come in two halves.
  bool meets_by_coordinator = false;  // Members of groups find each other over the coordinator.
};

/// The `sync.policy` of jobs whose steps are pulled as tokens: else they are those of "allreduce".
inline constexpr char kTokens[] = "tokens";
/// Instead of a `sync.policy`: the jobs of "allreduce", in the mode of `third_mode.hpp`.
inline constexpr char kThirdMode[] = "third-mode";

/// What a seed stands for. `policy`: as `sync.policy`; with another one than "allreduce" the job is
/// one of local updates. `is_dense`: the faults come in bursts, several within one exchange of a
/// group, and tensors and orders are late more often; so it is with one seed in four of a policy.
Scenario make_scenario(uint64_t seed, const std::string& policy, bool is_dense = false);
/// Another job for the same machines, of any kind; without faults if the scenario has none.
Scenario companion_of(const Scenario& scenario);
/// The same job on one worker, without faults.
Scenario undisturbed(const Scenario& scenario);
/// "crash@3.1s(2)"
std::string to_text(const Fault& fault);

}  // namespace skein::sim
