#pragma once

#include <string>

#include "net/control/control_link.hpp"

namespace skein::sim {

/// "Commit 12 (g2 t1)", for traces; empty for what comes all the time.
std::string to_text(const net::schema::Envelope::Reader& envelope);

}  // namespace skein::sim
