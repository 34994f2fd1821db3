#pragma once

#include <set>
#include <string>

#include "cli/config/job_keys.hpp"

namespace skein::cli {

/// Whether the key `name` is one of those of [model] that say what the weights of a folder mean.
bool describes_model(const std::string& name);

/// Whether keys of these names say all of a model: a run's own file of the whole job does, and the
/// folder that its weights are from may be gone when it is resumed.
bool gives_whole_model(const std::set<std::string>& names);

/// What a key of [model] says beside the model of the folder `model.from`.
enum class ModelClaim { kSame, kSameInOtherWords, kOther };

/// `given` is a job with the folder's model in which `key` has been set, whatever to; `folder` is
/// the same job without that. The folder's model is a proper one.
ModelClaim compare_claim(const JobKey& key, plans::JobSpec given, plans::JobSpec folder);

}  // namespace skein::cli
