#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::plans {

/// Which of several sources of data sample number n of a job is from, and the how manieth of its
/// own: a pure function, as `SampleOrder` is. Of every `kBlock` samples each source has its
/// share exactly, in an order that depends on the seed; its own samples follow one another.
class SampleMixture {
 public:
  /// Samples of a block: shares are multiples of one in so many.
  static constexpr uint64_t kBlock = 4096;

  /// `weights` are in proportion to shares, one for each source.
  /// InvalidArgument   there are none or too many, one is not above 0, or is so small beside the
  ///                   others that it would have no sample of a block.
  static absl::StatusOr<SampleMixture> make(const std::vector<double>& weights, uint64_t seed);

  struct Place {
    size_t source = 0;
    uint64_t sample = 0;  // Counted from 0 among the source's own.
    bool operator==(const Place&) const = default;
  };
  Place place(uint64_t sample) const {
    const uint64_t block = sample / kBlock;
    Place found = block_[sample % kBlock];
    found.sample += block * shares_[found.source];
    return found;
  }
  /// The samples of a block that the source has.
  uint64_t share(size_t source) const { return shares_[source]; }

 private:
  std::vector<uint64_t> shares_;  // By source.
  std::vector<Place> block_;      // The places of the first block.
};

}  // namespace skein::plans
