#pragma once

#include <cstdint>

namespace skein::plans {

/// Nobody names a larger position of a turn.
inline constexpr uint64_t kTurnPositionMax = uint64_t{1} << 62;

/// What a worker says of the device that it shares, whenever it has prepared or is ready.
struct TurnReport {
  uint64_t head = 0;  // As `DeviceTurns::head`; 0: it shares no device.
  bool has_turns = false;
  bool operator==(const TurnReport&) const = default;
};

}  // namespace skein::plans
