#!/usr/bin/env python3
"""Loads the CSV of every schedule in PyTorch's pipelining, checks and dry-runs it with PyTorch's own
functions, and compares the lists with PyTorch's where both make the same schedule."""
import csv
import subprocess
import sys
from types import SimpleNamespace

try:
    import torch
    from torch.distributed.pipelining import schedules
except ImportError as error:
    print(f"skipped: needs a PyTorch with torch.distributed.pipelining ({error})")
    sys.exit(77)
NEEDED = ["_Action", "_validate_schedule", "_add_send_recv", "_simulate_comms_compute",
          "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"]
MISSING = [name for name in NEEDED if not hasattr(schedules, name)]
if MISSING:
    print(f"skipped: PyTorch {torch.__version__} lacks {', '.join(MISSING)}")
    sys.exit(77)


def load(lines):
    """As `PipelineScheduleMulti._load_csv`."""
    return {rank: [schedules._Action.from_str(cell) for cell in row]
            for rank, row in enumerate(csv.reader(lines))}


def check(order, ranks, stages, microbatches):
    """Counts and order, then deadlocks with the sends and receives that PyTorch adds."""
    rank_of = schedules._validate_schedule(order, ranks, stages, microbatches)
    with_transfers = schedules._add_send_recv(
        {rank: list(actions) for rank, actions in order.items()},
        stage_to_rank=lambda stage: rank_of[stage], num_stages=stages)
    schedules._simulate_comms_compute(
        with_transfers, stage_to_rank=lambda stage: rank_of[stage], num_stages=stages)


def pytorchs_own(kind, ranks, per_rank, microbatches):
    """PyTorch's lists, or None if it has no such schedule."""
    rounds = max(1, microbatches // ranks)
    itself = SimpleNamespace(n_local_stages=per_rank, pp_group_size=ranks, _num_stages=ranks,
                             microbatches_per_round=microbatches // rounds,
                             _n_microbatches=microbatches)
    single = {"GPipe": "ScheduleGPipe", "1F1B": "Schedule1F1B"}.get(kind)
    multi = {"Interleaved1F1B": "ScheduleInterleaved1F1B",
             "ZBH1": "ScheduleInterleavedZeroBubble"}.get(kind)
    if single and microbatches >= ranks:
        maker = getattr(schedules, single)
        if not hasattr(maker, "_get_pipeline_order"):
            return None
        order = maker._get_pipeline_order(itself)
    elif multi and microbatches % rounds == 0 and (kind != "ZBH1" or microbatches >= ranks):
        maker = getattr(schedules, multi)
        order = {rank: maker._calculate_single_rank_operations(itself, rank)
                 for rank in range(ranks)}
    else:
        return None
    if kind == "1F1B":
        # PyTorch 2.9.1 numbers the forwards of the last rank from 1 (2F1,2B0,...,2F5,2B4) in what it
        # lists; what it executes is right.
        del order[ranks - 1]
    compute = {schedules.F, schedules.B, schedules.I, schedules.W}
    return {rank: [action for action in actions if action and action.computation_type in compute]
            for rank, actions in order.items()}


def main():
    text = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    checked, compared, wrong = {}, {}, 0
    for block in text.split("# ")[1:]:
        title, *lines = block.splitlines()
        kind, *numbers = title.split()
        ranks, per_rank, microbatches = map(int, numbers)
        order = load(lines)
        try:
            check(order, ranks, ranks * per_rank, microbatches)
        except (AssertionError, ValueError, RuntimeError) as error:
            print(f"WRONG {title}: {str(error).splitlines()[0]}")
            wrong += 1
        checked[kind] = checked.get(kind, 0) + 1
        own = pytorchs_own(kind, ranks, per_rank, microbatches)
        if own is not None:
            compared[kind] = compared.get(kind, 0) + 1
            if any(own[rank] != order[rank] for rank in own):
                print(f"WRONG {title}: the lists differ from PyTorch's")
                wrong += 1
    for kind, count in checked.items():
        print(f"{kind}: PyTorch {torch.__version__} accepts {count}, "
              f"{compared.get(kind, 0)} compared with its own lists")
    if wrong or len(checked) < 7 or len(compared) < 2:
        print(f"{wrong} wrong, {len(checked)} kinds checked, {len(compared)} compared")
        sys.exit(1)


if __name__ == "__main__":
    main()
