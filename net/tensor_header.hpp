#pragma once

#include "net/data_plane.hpp"
#include "net/schema/tensor.capnp.h"
#include "net/wire.hpp"

namespace skein::net {

/// What goes ahead of the rows' payload on a data connection.
Wire<schema::TensorHeader> make_tensor_header(const DataPlane::Rows& rows);

}  // namespace skein::net
