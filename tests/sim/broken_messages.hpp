#pragma once

#include <optional>

#include "net/codec/envelope.hpp"

namespace skein::sim {

/// Protocols that are broken on purpose, to see that the checks would find it.
enum class Mutation {
  kNone,
  kCommitBeforeJournal,
  kStaleGeneration,
  kLeaseIgnored,
  kDigestsSkipped,       // Damage in a checkpoint has digests that fit.
  kSnapshotStepIgnored,  // A worker offers all of its state as that of its newest step.
  kRewindSkipped,        // The journal keeps steps that were taken back.
  kRunIgnored,           // Workers and coordinators take each other whatever run they serve.
  kLeftIgnored,          // What workers leave that give up their coordinator is not looked at.
  kFenceSkipped,         // The journal takes commits of a coordinator after a later one has begun.
  kSealsSkipped,         // Layers that move lose a bit, and nobody looks.
  kClosedIsDead,         // A worker whose connection has ended is taken for dead.
  kConfigKept,           // Workers go on with the configuration that they had first.
  kModelsKept,           // What a worker holds stays on a device that is full.
  kFullForgotten,        // That a worker cannot go on is not heard.
  kCompleteTorn,         // A death between two operations on files tears a complete checkpoint.
  // The next ones are about jobs that share devices.
  kTurnKept,     // A job keeps its turns when it quiesces, validates or ends.
  kTurnByClock,  // A device puts a job in as soon as it hears of it, whatever was named.
  // The next ones are about local updates.
  kAbortSkipped,     // Does not hear that a group lacks a member.
  kReturnedLost,     // Never gets the samples of a pipeline replica that was lost.
  kSumSkewed,        // Takes the sum of a group with other weights.
  kSamplesRepeated,  // Trains its first samples again and again.
  // The next one is about steps by tokens.
  kClaimKept,  // Does not hear of tokens that it is granted, and they stay its own.
};

/// What a worker makes of the messages that it receives.
class BrokenMessages {
 public:
  explicit BrokenMessages(Mutation mutation) : mutation_(mutation) {}

  /// What the coordinator makes of a message that it receives. False: the message is lost.
  static bool receive_at_coordinator(Mutation mutation, net::Envelope& message);
  /// None: the message is lost.
  std::optional<net::Envelope> receive(net::Envelope message);

 private:
  void keep_first(net::ControlBody& body);

  const Mutation mutation_;
  std::optional<net::Joined> first_;  // That was received.
  bool is_done_ = false;              // With its part of a round.
  uint64_t first_sample_ = 0;
};

}  // namespace skein::sim
