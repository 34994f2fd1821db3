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

}  // namespace skein::sim
