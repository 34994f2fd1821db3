#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <capnp/blob.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::net {

// Texts, in bytes.

/// Names of hosts, devices, jobs, tensors, files and what a device works on.
inline constexpr size_t kNameBytesMax = 256;
/// A path: Linux has no longer ones.
inline constexpr size_t kPathBytesMax = 4096;
/// Why something happened, in one line for people; a sender cuts what is longer.
inline constexpr size_t kReasonBytesMax = 4096;
/// A rank's list of actions: 100,000 have 1 MB.
inline constexpr size_t kActionsBytesMax = 2 << 20;
/// A job's file with all of its keys has 10 kB; a list of speeds or of a trace may be long.
inline constexpr size_t kJobConfigBytesMax = 1 << 20;
/// A rendezvous key names a generation, a group and two members.
inline constexpr size_t kKeyBytesMax = 1024;
/// What a member publishes has some hundred bytes for each of the others.
inline constexpr size_t kRendezvousBytesMax = 1 << 20;

// Lists.

/// Micro-batches whose ends a stage's part has: a list of actions has no more, see
/// kActionsBytesMax.
inline constexpr size_t kEndsMax = 100'000;
/// Ten times the largest cluster in mind.
inline constexpr size_t kPeersMax = 16384;
/// A worker gives its own stages and three sets of each stage that it keeps.
inline constexpr size_t kInventoryMax = 65536;
/// As many as fit into kControlBytesMax: all layers of a model for every replica of a cluster.
inline constexpr size_t kMovesMax = 262144;
/// A group's members open a stream to each other; `kChunkSendersMax` is the same.
inline constexpr size_t kMembersMax = 4096;
/// Model and optimizer, with room for more.
inline constexpr size_t kFilesPerShardMax = 64;
/// Twelve tensors for each layer of a stage, with their moments.
inline constexpr size_t kTensorsPerFileMax = 65536;
/// A step of 1,000 micro-batches has some 10,000; a sender leaves out what comes after these.
inline constexpr size_t kSlicesMax = 65536;
/// Numbers of rows that are measured.
inline constexpr size_t kRowCountsMax = 64;
/// Replicas that one worker's line of a status may name.
inline constexpr size_t kHostedMax = 4096;

// Numbers. Each leaves room for a sum or a product of a few of them in 64 bits.

inline constexpr uint64_t kLayersMax = 100'000;
inline constexpr uint64_t kStagesMax = kLayersMax;  // A stage has a layer at least.
inline constexpr uint64_t kReplicasMax = 100'000;   // As `plans::parse_plan`.
inline constexpr uint64_t kMicrobatchesMax = 1 << 20;
inline constexpr uint64_t kRowsMax = 1 << 30;
inline constexpr uint64_t kStepsMax = uint64_t{1} << 48;  // A step each microsecond for 8 years.
inline constexpr uint64_t kGenerationsMax = uint64_t{1} << 47;  // 48 bits are left for a group's.
inline constexpr uint64_t kTermsMax = uint64_t{1} << 47;
inline constexpr uint64_t kSamplesMax = uint64_t{1} << 56;  // And tokens.
inline constexpr uint64_t kBytesMax = uint64_t{1} << 56;
inline constexpr uint64_t kTokenMax = (uint64_t{1} << 31) - 1;  // A token's number.
/// A layer of a model takes less, and as many as there may be have less than 2^63 together.
inline constexpr uint64_t kLayerBytesMax = uint64_t{1} << 46;
inline constexpr uint64_t kEventsMax = uint64_t{1} << 48;
inline constexpr uint64_t kTimeUsMax = uint64_t{1} << 53;  // 285 years; exact as a double.
/// A device may be emulated as slow as a chaos script can say, or faster than the reference.
inline constexpr double kSpeedMin = 1e-9;
inline constexpr double kSpeedMax = 1e9;
/// Policies give a member at most 1; the rest is for rounding and for those to come.
inline constexpr double kWeightMax = 1e3;
/// Multiples of a model's bytes: 4 is usual.
inline constexpr double kFactorMax = 1e3;
/// Times are divided by a link's speed; no link and no memory has as much.
inline constexpr double kBytesPerSecondMin = 1;
inline constexpr double kBytesPerSecondMax = 1e18;
inline constexpr double kTokensPerSecondMax = 1e18;

/// Reads the fields of one message and remembers the first one that is out of its bounds, so that
/// a codec reads straight through: a value that is wrong comes out as 0 or empty, and a list that
/// is too long has no elements. Used by one thread.
class Bounds {
 public:
  /// `message` is the name of the message and outlives this.
  explicit Bounds(const char* message) : message_(message) {}

  /// 0..max.
  uint64_t count(const char* field, uint64_t value, uint64_t max);
  int64_t signed_count(const char* field, uint64_t value, uint64_t max);
  /// 0..max - 1.
  uint64_t index(const char* field, uint64_t value, uint64_t max);
  int32_t stage(const char* field, uint32_t value);
  plans::ReplicaId replica(const char* field, uint32_t value);
  plans::WorkerId worker(const char* field, uint32_t value);                  // Never 0.
  plans::WorkerId worker_or_none(const char* field, uint32_t value);          // 0 is nobody.
  plans::LayerRange layers(const char* field, uint32_t begin, uint32_t end);  // Not empty.
  /// In [min, max], so never infinite and always a number.
  double finite(const char* field, double value, double min, double max);
  /// A sum of squares or its root: finite, >= 0.
  double norm(const char* field, double value);
  /// A norm, or not finite: this is how a worker says that the training has diverged.
  double norm_or_diverged(const char* field, double value);
  /// UTF-8 in one line, without control characters.
  std::string text(const char* field, capnp::Text::Reader value, size_t max);
  std::string name(const char* field, capnp::Text::Reader value) {
    return text(field, value, kNameBytesMax);
  }
  /// UTF-8 of several lines.
  std::string lines(const char* field, capnp::Text::Reader value, size_t max);
  /// A name that stays inside the folder that it is relative to.
  std::string file_name(const char* field, capnp::Text::Reader value);
  std::vector<char> bytes(const char* field, capnp::Data::Reader value, size_t max);
  /// Elements to read: 0 if there are more than `max`.
  unsigned size(const char* field, size_t elements, size_t max);

  /// Fields that are read while the result lives are of element `index` of a list.
  class Element {
   public:
    Element(Bounds& bounds, const char* list, size_t index) : bounds_(bounds) {
      bounds_.path_.emplace_back(list, index);
    }
    ~Element() { bounds_.path_.pop_back(); }
    Element(const Element&) = delete;
    Element& operator=(const Element&) = delete;

   private:
    Bounds& bounds_;
  };
  Element element(const char* list, size_t index) { return {*this, list, index}; }
  /// The same for a struct within the message.
  Element inside(const char* field) { return {*this, field, kNoIndex}; }

  /// The first field that is out of bounds, with its value and what is allowed; InvalidArgument.
  const absl::Status& status() const { return status_; }
  /// `what` is a whole reason: "is 7, at most 5".
  void refuse(const char* field, const std::string& what);

 private:
  static constexpr size_t kNoIndex = static_cast<size_t>(-1);

  bool fits_text(const char* field, std::string_view value, size_t max, bool may_have_lines);

  const char* message_;
  std::vector<std::pair<const char*, size_t>> path_;  // What we are in, outermost first.
  absl::Status status_;
};

/// `text` as a peer accepts it: at most `max` bytes of UTF-8, in one line, no control characters.
/// For reasons that come from elsewhere.
std::string fit_text(std::string_view text, size_t max);

}  // namespace skein::net
