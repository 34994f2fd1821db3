#pragma once

#include "net/control/wire.hpp"
#include "net/data/data_plane.hpp"
#include "net/schema/tensor.capnp.h"

namespace skein::net {

/// What goes ahead of the rows' payload on a data connection, as bfloat16 or in full.
Wire<schema::TensorHeader> make_tensor_header(const DataPlane::Rows& rows, bool is_bfloat16);

}  // namespace skein::net
