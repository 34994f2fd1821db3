#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

/// Whether the bytes of `data`, where those are its tokens, are tokens of the tokenizer.json of
/// each of `folders` that has one.
/// InvalidArgument   they are not: some token below 256 stands for another byte, or the file is of
///                   a kind that is not read.
/// DataLoss          it is damaged.
absl::Status check_bytes_are_tokens(const std::vector<std::string>& folders,
                                    const plans::DataSpec& data);

}  // namespace skein::gpu
