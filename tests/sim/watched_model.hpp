#pragma once

#include <memory>

#include "gpu/model/stage_model.hpp"
#include "plans/base/check.hpp"

namespace skein::sim {

/// A model that a check looks at and does not keep: what its worker lets go is free on the device.
class WatchedModel : public std::weak_ptr<gpu::StageModel> {
 public:
  using std::weak_ptr<gpu::StageModel>::weak_ptr;

  /// Ends the process if nobody has it any more.
  const gpu::StageModel& operator*() const {
    const auto model = lock();
    SKEIN_CHECK(model) << "a check looks at a model that is gone";
    return *model;
  }
};

/// While one lives, what is on a device that has failed can be read: by who watches.
class WatchersRead {
 public:
  WatchersRead() { ++count_; }
  ~WatchersRead() { --count_; }
  WatchersRead(const WatchersRead&) = delete;
  WatchersRead& operator=(const WatchersRead&) = delete;

  static bool is_one() { return count_ > 0; }

 private:
  static inline int count_ = 0;
};

}  // namespace skein::sim
