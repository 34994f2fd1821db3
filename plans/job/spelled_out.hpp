#pragma once

#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// The same model with K, D, I and the bias of q, k and v said, where they are left to be as they
/// are anyway: models that mean the same in other words become equal. H > 0.
ModelSpec spelled_out(const ModelSpec& model);

}  // namespace skein::plans
