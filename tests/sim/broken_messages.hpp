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
  kSnapshotStepIgnored,  // A worker offers all of its state as that of its newest step.
  kRewindSkipped,        // The journal keeps steps that were taken back.
  // The next ones are about local updates.
  kAbortSkipped,     // Does not hear that a group lacks a member.
  kReturnedLost,     // Never gets the samples of a pipeline replica that was lost.
  kSumSkewed,        // Takes the sum of a group with other weights.
  kSamplesRepeated,  // Trains its first samples again and again.
};

/// What a worker makes of the messages that it receives.
class BrokenMessages {
 public:
  explicit BrokenMessages(Mutation mutation) : mutation_(mutation) {}

  /// None: the message is lost.
  std::optional<net::Envelope> receive(net::Envelope message);

 private:
  const Mutation mutation_;
  bool is_done_ = false;  // With its part of a round.
  uint64_t first_sample_ = 0;
};

}  // namespace skein::sim
