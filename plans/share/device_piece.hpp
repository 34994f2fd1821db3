#pragma once

#include <cstdint>

namespace skein::plans {

/// What a piece of a job's work asks of a device that jobs share.
enum class PieceNeed : uint8_t {
  kTurn = 0,   // An action of a pass: if the job takes turns, its own.
  kShare = 1,  // It takes of the job's part of the time: validation.
  kAside = 2,  // Others wait for it, and it is short: norms, updates, copies. It goes first.
};
struct DevicePieceNeed {
  PieceNeed need = PieceNeed::kShare;
  bool ends_pass = false;  // kTurn: the last one of its pass.
  int32_t index = -1;      // kTurn: its place in the pass, from 0; -1: not known.
};

}  // namespace skein::plans
