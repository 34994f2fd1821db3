#include "plans/schedule/interleaved_1f1b.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

/// One stage of a rank (its v-th) and a micro-batch.
struct Piece {
  int32_t local_stage = 0;
  int32_t microbatch = 0;
};

int32_t round_count(int32_t rank_count, int32_t microbatch_count) {
  return std::max(1, microbatch_count / rank_count);
}

/// Order in which every rank runs its forwards; backwards are the same with the stages reversed.
std::vector<Piece> rounds(int32_t rank_count, int32_t stages_per_rank, int32_t microbatch_count) {
  const int32_t count = round_count(rank_count, microbatch_count);
  std::vector<Piece> pieces;
  int32_t begin = 0;
  for (int32_t round = 0; round < count; ++round) {
    const int32_t end =
        begin + microbatch_count / count + (round < microbatch_count % count ? 1 : 0);
    for (int32_t v = 0; v < stages_per_rank; ++v) {
      for (int32_t m = begin; m < end; ++m) pieces.push_back({v, m});
    }
    begin = end;
  }
  return pieces;
}

absl::Status check_layout(const ScheduleShape& shape) {
  const int32_t R = shape.rank_count();
  for (int32_t s = 0; s < shape.stage_count(); ++s) {
    const int32_t rank = shape.rank_of_stage[static_cast<size_t>(s)];
    if (rank != s % R || shape.stage_count() % R != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Interleaved1F1B needs stage s on rank s mod R and as many stages on every rank, there "
          "are ",
          shape.stage_count(), " stages on ", R, " ranks and stage ", s, " is on rank ", rank,
          "; use \"Greedy\" for other layouts"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> interleaved_1f1b(const ScheduleShape& shape) {
  if (absl::Status layout = check_layout(shape); !layout.ok()) return layout;
  const int32_t R = shape.rank_count();
  const int32_t V = shape.stage_count() / R;
  const int32_t M = shape.microbatch_count;
  const std::vector<Piece> pieces = rounds(R, V, M);
  const int32_t count = round_count(R, M);
  const int32_t first_round = (M + count - 1) / count;
  Schedule schedule(static_cast<size_t>(R));
  for (int32_t rank = 0; rank < R; ++rank) {
    ActionList& actions = schedule[static_cast<size_t>(rank)];
    const auto ahead =
        std::min(pieces.size(), static_cast<size_t>((V - 1) * first_round + 2 * (R - 1 - rank)));
    for (size_t i = 0; i < pieces.size() + ahead; ++i) {
      if (i < pieces.size()) {
        const Piece& piece = pieces[i];
        actions.push_back({piece.local_stage * R + rank, ActionType::kForward, piece.microbatch});
      }
      if (i >= ahead) {
        const Piece& piece = pieces[i - ahead];
        actions.push_back(
            {(V - 1 - piece.local_stage) * R + rank, ActionType::kBackward, piece.microbatch});
      }
    }
  }
  return schedule;
}

}  // namespace skein::plans
