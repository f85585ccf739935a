// Compute orders that trade memory for idle time: more memory than 1F1B and ZB-H1 take, or less.
// Terms and errors as in rules.h; costs are those of one full rank.
#pragma once

#include "schedule/schedule.h"
#include "schedule/table.h"

namespace penstock::schedule {

// --- By closed rules, one stage per rank, any M. ---

// 1F1B with twice the forwards ahead: min(M, 2(P-1-r)) of them, then a forward and a backward in
// turn. Peak min(M, 2(P-r)-1). Idle is 1F1B's with free transfers; a transfer may take as long as
// a pass before it costs more. Source: Alpa's overlap-friendly 1F1B (Zheng et al. 2022).
RowSource eager_1f1b_rows(const ScheduleArgs& args);

// min(M, 2(P-1-r)) forwards, then a forward and an input part in turn, with the oldest weight part
// after it once more than 2r are put off; the rest of them at the end. Peak min(M, 2P-1). A rank is
// idle for (P-1) max(0, F+I-2W) between its own first and last pass, M permitting; a rank's start
// still lags (P-1)F behind the first one's. Source: ZB-H2 (Qi et al. 2023).
RowSource zb_h2_rows(const ScheduleArgs& args);

// --- Two chunks on a V, with a fraction of 1F1B's memory (Qi et al. 2024). Any M. ---
//
// Each starts from a plan in which micro batch j runs 6j slots after the first one, with weight
// parts, oldest first, in the slots that are free. Then a bounded local search among orders of at
// most the same memory takes out idle time, judged at equal costs, at unequal ones and with slow
// transfers. The more passes a pipe has, the fewer orders it tries; above a million passes, rows
// are made one by one, and the plan itself stands. Idle of V-Half at F = I = W, even P above 2 and
// M >= 2P: as a rule (3P-7)/2 full passes; 8.5 at P = 8, where the plan has 13.

// Peak 2((P+2) div 2) chunks: half of ZBV's.
RowSource v_half_rows(const ScheduleArgs& args);
// Peak 2((P+4) div 3) chunks: a third of ZBV's.
RowSource v_min_rows(const ScheduleArgs& args);

}  // namespace penstock::schedule
