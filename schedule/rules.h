// Compute orders by closed rules: each rank's row follows from its number alone.
//
// Notation: P ranks, v chunks per rank, M micro batches, r the rank. "Peak" is the largest number
// of stage activations alive on a rank, from F until B, or until W where the backward is split.
// "Idle" is what the makespan exceeds M times the rank's work by, in units of a full rank's F, I, W
// and B = I + W, with free transfers.
//
// Every function throws ScheduleError, before anything is made, when the arguments are out of range
// or are not those of the rule; messages name the config key. args.rank is not looked at. A row is
// made in time proportional to its length. Where PyTorch takes the arguments, the orders are those
// of torch.distributed.pipelining; where it does not, each comment says how the rule goes on.
#pragma once

#include "schedule/schedule.h"
#include "schedule/table.h"

namespace penstock::schedule {

// --- Breadth first. Any stage map, any M. Peak: M per chunk. ---

// All forwards, stage by stage, then all backwards, stage by stage, each in ascending micro
// batches, so that weight gradients add up in the order of the micro batches. Idle on a loop:
// (P-1)(F+B)/v. Source: GPipe (Huang et al. 2019).
RowSource gpipe_rows(const ScheduleArgs& args);
// The same with the backwards in descending order: what was made last is used up first.
RowSource gpipe_reversed_rows(const ScheduleArgs& args);
// gpipe_reversed on a loop: PyTorch's LoopedBFS (Lamy-Poirier 2023).
RowSource looped_bfs_rows(const ScheduleArgs& args);

// --- One forward, one backward. Loops, any M. ---

// One stage per rank. min(M, P-r) forwards, then a backward and a forward in turn, then the
// backwards that are left. Peak min(M, P-r), idle (P-1)(F+B). Source: PipeDream-Flush (Narayanan
// et al. 2021).
RowSource one_f_one_b_rows(const ScheduleArgs& args);

// Micro batches go in R = max(1, M div P) rounds; a round passes one chunk whole, then the next;
// backwards take the chunks the other way round. With q micro batches in a round, rank r runs
// (v-1)q + 2(P-1-r) forwards first, then a forward and a backward in turn. With v = 1, P-1-r
// forwards first: 1F1B. Peak min(vM, (v-1)q + 2(P-1-r) + 1), idle (P-1)(F+B)/v for M >= P. PyTorch
// refuses an M that R does not divide; here the first M mod R rounds then have one micro batch more
// than the others, and q is the size of those. q is always less than 2P.
// Source: Narayanan et al. 2021; rounds as in PyTorch's ScheduleInterleaved1F1B.
RowSource interleaved_1f1b_rows(const ScheduleArgs& args);

// --- Zero bubble: the backward split in an input part I and a weight part W. ---

// The order of interleaved_1f1b with (v-1)q + P-1-r forwards first and I in place of B. A W follows
// as soon as more than r of them are put off, always of the oldest; what is left follows at the
// end. Any M, rounds as above. Peak min(vM, (v-1)q + P), idle (P-1)(F + max(I-W, 0))/v for M >= P.
// Source: ZB-H1 (Qi et al. 2023), PyTorch's ScheduleInterleavedZeroBubble.
RowSource zb1p_rows(const ScheduleArgs& args);
// zb1p with one stage per rank: ZB-H1.
RowSource zb_h1_rows(const ScheduleArgs& args);

// Two chunks on a V, made for F = I = W: then idle is (P-1)F/2 at the end and none between a rank's
// own first and last action, for M >= 2P-1. Any M; below 2P-1, the order of 2P-1 micro batches
// without those that are too many. Peak min(2M, 2P) chunks. Source: ZBV (Qi et al. 2024), PyTorch's
// ScheduleZBVZeroBubble.
RowSource zbv_rows(const ScheduleArgs& args);

// Two chunks on a V; forwards overlap with backwards of the other chunk. M >= 2P, else refused.
// Peak 2P+1 chunks where I <= F and I <= W. Source: DualPipe (DeepSeek 2024) cut in half, PyTorch's
// ScheduleDualPipeV.
RowSource dualpipev_rows(const ScheduleArgs& args);

// --- Forward only. ---

// Any stage map, any M. The passes of q = min(P, M) micro batches through all stages are laid out
// once, each in the first slot after the stage before it in which its rank is free; slots are taken
// modulo the q * v that the busiest rank needs, and the plan repeats with that period for the
// following micro batches. So the busiest rank has no idle slot from period to period, and the
// outputs that wait for the next stage do not grow with M. On a loop: q micro batches through one
// chunk, then the next.
RowSource forward_only_rows(const ScheduleArgs& args);

}  // namespace penstock::schedule
