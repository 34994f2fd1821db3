#pragma once

#include "absl/status/statusor.h"
#include "net/schema/control.capnp.h"
#include "plans/profile/profile.hpp"

namespace skein::net {

/// Writes everything but `source`, which is not sent: what travels was measured.
void encode_profile(const plans::Profile& profile, schema::Profile::Builder to);

/// InvalidArgument   if sizes do not fit each other or a number is out of range.
absl::StatusOr<plans::Profile> decode_profile(schema::Profile::Reader from);

}  // namespace skein::net
