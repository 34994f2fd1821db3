#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "plans/base/rng.hpp"

namespace skein::sim {

/// The storage that all processes of a run share: how long it takes, and what goes wrong with it.
/// Draws apart from the world, so that a run with a fast disk is the same with and without it.
class Disk {
 public:
  /// `write_us_max`: how long a stage's files, or a whole checkpoint, may take; 0: no time.
  Disk(std::string run_folder, uint64_t seed, uint64_t write_us_max);

  const std::string& run_folder() const { return run_folder_; }
  bool is_slow() const { return write_us_max_ > 0; }
  /// How long the next one takes.
  uint64_t take_us() { return rng_.below(write_us_max_ + 1); }

  /// A number in the newest complete checkpoint is changed, or in the next one if there is none
  /// that is whole. `keeps_digests`: with digests that fit, as if nobody looked at them.
  void damage_checkpoint(bool keeps_digests);
  bool is_damaged(const std::string& folder) const { return damaged_.contains(folder); }
  /// The folder is a new checkpoint.
  void on_completed(const std::string& folder);
  /// Every complete checkpoint has been damaged, and there is one.
  bool has_only_damaged() const;
  bool has_checkpoint() const;
  /// The checkpoint is gone, and a complete one of a later step is there.
  bool has_replaced(const std::string& folder) const;

  /// Deletes all that is in no complete checkpoint.
  void delete_partial() const;

  /// The next shard goes to a disk that nobody else sees.
  void lose_next_shard() { loses_shard_ = true; }
  /// Deletes the files of a shard, if it is to be lost.
  void on_shard_written(const std::string& folder, const std::set<std::string>& names);

 private:
  std::string run_folder_;
  plans::Rng rng_;
  uint64_t write_us_max_ = 0;
  std::set<std::string> damaged_;     // Folders.
  std::optional<bool> damages_next_;  // Whether digests are kept.
  bool loses_shard_ = false;
};

}  // namespace skein::sim
