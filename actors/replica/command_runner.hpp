#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "actors/replica/outgoing.hpp"
#include "actors/replica/replica_config.hpp"
#include "actors/replica/replica_parts.hpp"
#include "net/codec/envelope.hpp"
#include "plans/worker/program_commands.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::actors {

/// Carries out what a program commands, with the components of its Replica. Owned by one actor;
/// touched only from its handlers.
class CommandRunner {
 public:
  struct Options {
    std::function<uint64_t()> now_us;
    std::function<void(const net::ControlBody&)> report;  // To the coordinator.
    std::function<void(const absl::Status&)> fail;        // Runs out of memory.
    std::function<void(const TensorSent&)> on_sent;       // On any thread.
  };
  CommandRunner(Options options, const ReplicaConfig& config, const plans::WorkerProgram& program,
                ReplicaParts& parts);

  /// Starts it; whatever follows from it is an event of the program.
  void run(const plans::ProgramCommand& command);
  /// The step of an update is over: reports its timings, if they are wanted.
  void end_step(const plans::RunUpdate& command);
  /// All that the device will do together with others in a step takes its place in their order.
  void expect_operations(uint64_t step);

 private:
  std::shared_ptr<gpu::StageModel> tied_head(const StageReplica& own) const;
  void carry_out(const plans::RunAction& command);
  void carry_out(const plans::RunNorm& command);
  void carry_out(const plans::RunUpdate& command);
  void carry_out(const plans::RunValidation& command);
  void carry_out(const plans::SendReady& command);
  void carry_out(const plans::RunReduction& command);
  void carry_out(const plans::SendReduced& command);
  void carry_out(const plans::SendEarlySignal& command);
  void carry_out(const plans::RunBegin& command);
  void carry_out(const plans::RunShare& command);
  void carry_out(const plans::SendTokenReport& command);
  void carry_out(const plans::SendOutput& command);
  void carry_out(const plans::SaveState& command);
  void carry_out(const plans::KeepSnapshot& command);
  void carry_out(const plans::SendValidated& command);
  void carry_out(const plans::BeginRound& command);
  void carry_out(const plans::RunAverage& command);

  void run_forward(const plans::RunAction& command, const StageReplica& own);
  void run_backward(const plans::RunAction& command, const StageReplica& own);
  Outgoing outgoing(const StageReplica& from, net::schema::TensorKind kind,
                    const plans::RunAction& run);
  void watch(Outgoing& output, int32_t stage, net::schema::TensorKind kind, int32_t microbatch,
             uint64_t step);

  const Options options_;
  const ReplicaConfig& config_;
  const plans::WorkerProgram& program_;
  ReplicaParts& parts_;
};

/// A tensor that is sent or received, in the trace: "0SEND_F3".
std::string slice_name(int32_t stage, const std::string& kind, int32_t microbatch);

}  // namespace skein::actors
