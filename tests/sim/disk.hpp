#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::sim {

/// The storage that all processes of a run share: how long it takes, and what goes wrong with it.
/// Draws apart from the world, so that a run with a fast disk is the same with and without it.
class Disk {
 public:
  /// `write_us_max`: how long a stage's files, or a whole checkpoint, may take; 0: no time.
  Disk(std::string run_folder, uint64_t seed, uint64_t write_us_max);
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  const std::string& run_folder() const { return run_folder_; }
  bool is_slow() const { return write_us_max_ > 0; }
  /// Shards are looked at when they have been written, which takes a message more.
  void watch_shards() { watches_shards_ = true; }
  bool watches_shards() const { return watches_shards_ || is_slow(); }
  /// How long the next one takes.
  uint64_t take_us() { return rng_.below(write_us_max_ + 1); }

  /// A number in the newest complete checkpoint is changed, or in the next one if there is none
  /// that is whole. `keeps_digests`: with digests that fit, as if nobody looked at them.
  void damage_checkpoint(bool keeps_digests);
  bool is_damaged(const std::string& folder) const;
  /// There is a new checkpoint.
  void on_completed();
  /// Every complete checkpoint has been damaged, and there is one.
  bool has_only_damaged() const;
  bool has_checkpoint() const;
  /// The checkpoint is gone, and a complete one of a later step is there.
  bool has_replaced(const std::string& folder) const;

  /// Deletes all that is in no complete checkpoint.
  void delete_partial() const;

  /// The next shard goes to a disk that nobody else sees.
  void lose_next_shard() { has_failed_ = loses_shard_ = true; }
  /// Deletes the files of a shard, if it is to be lost, or tears one of them. `is_last`: of the
  /// run, which ends if that is not written: it is not lost.
  void on_shard_written(const std::string& folder, const std::set<std::string>& names,
                        bool is_last);

  /// From the operation after the next `operations` ones on nothing can be written, until
  /// `make_space`.
  void fill(int64_t operations);
  /// Another run has filled it, which will make space again.
  void share_full() { has_failed_ = was_full_ = true; }
  void make_space();
  bool is_full() const { return is_full_; }
  /// Whether it has been full since it was last asked: what ends with that is to be begun anew.
  bool take_was_full() { return std::exchange(was_full_, is_full_); }

  /// A file is shorter than its writer has reported: one of the next shard; of what the next worker
  /// leaves that gives up its coordinator; or of the newest complete checkpoint.
  void tear_next_shard() { has_failed_ = tears_shard_ = true; }
  void tear_next_left() { has_failed_ = tears_left_ = true; }
  void tear_checkpoint();
  /// A mutation: the same of the newest complete one, and nobody counts on it.
  void tear_newest();
  /// True if one of what was left in the folders is torn.
  bool on_left(const std::vector<std::string>& folders);
  /// Something has gone wrong with it in this run.
  bool has_failed() const { return has_failed_; }
  bool take_tore_shard() { return std::exchange(tore_shard_, false); }

 private:
  /// One of the files of a checkpoint's folder that have tensors; empty: there is none.
  std::string pick_file(const std::string& folder);
  /// In the folder itself: gone with it, or with a new one in its place.
  void mark_damaged(const std::string& folder) const;
  void tear(const std::string& path);

  std::string run_folder_;
  plans::Rng rng_;
  uint64_t write_us_max_ = 0;
  std::optional<bool> damages_next_;  // Whether digests are kept.
  bool loses_shard_ = false;
  bool tears_shard_ = false;
  bool tears_left_ = false;
  bool tore_shard_ = false;
  bool watches_shards_ = false;
  bool has_failed_ = false;
  bool is_full_ = false;
  bool was_full_ = false;
};

}  // namespace skein::sim
