#pragma once

#include "absl/status/statusor.h"
#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

/// Virtual stages: v stages on each of R ranks, stage s on rank s mod R, one forward and one
/// backward in turn. Micro-batches go through a rank's stages in rounds: those of a round through
/// the first stage, then the same ones through the second. Source: Narayanan et al., Efficient
/// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC'21, section 2.2; order
/// of the lists as in PyTorch's ScheduleInterleaved1F1B.
///
/// Rank r runs min(v M, (v - 1) G + 2 (R - 1 - r)) forwards first, G micro-batches in the first
/// round, and then holds at most one stash more, counted over all its stages. With equal stages, no
/// transfer time and M >= R the bubble is (R - 1) (F + B), F and B of one of the v stages.
/// v == 1 is 1F1B-PB.
///
/// Differs: M need not be a multiple of R. There are max(1, M / R) rounds of nearly equal length,
/// of at least R (or M) micro-batches, the longer ones first, so that a round never waits for
/// itself. PyTorch asks for rounds of equal length, Megatron for full ones.
///
/// InvalidArgument   if the stages are not laid out like this.
absl::StatusOr<Schedule> interleaved_1f1b(const ScheduleShape& shape);

}  // namespace skein::plans
