#pragma once

namespace skein::cli {

/// Opens /dev/null for each of descriptors 0 to 2 that is closed: else the next file that is opened
/// becomes standard output, and what is printed goes into it. Before any file is opened.
void hold_standard_descriptors();

}  // namespace skein::cli
