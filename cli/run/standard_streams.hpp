#pragma once

#include "absl/status/status.h"

namespace skein::cli {

/// Opens /dev/null for each of descriptors 0 to 2 that is closed: else the next file that is opened
/// becomes standard output, and what is printed goes into it. Before any file is opened.
void hold_standard_descriptors();

/// Writes out what was printed. Unavailable if standard output could not take all of it; a reader
/// that has left has what it wanted.
absl::Status flush_standard_output();

}  // namespace skein::cli
