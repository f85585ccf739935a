// Lowering: from the compute order of a table to the instruction stream of one rank.
//
// Each cell becomes one step: receives, then the passes, then sends. In training, ReduceGrads of a
// chunk follows its last weight gradient, and a last step holds ReduceTiedGrads and OptimizerStep.
// Neighbouring stages on one rank hand over without instructions: the later one's ForwardPass
// takes the output from the buffer of the same micro batch of the earlier one's chunk, and its
// backward puts the gradient there.
//
// Send stands right after its producer, Recv right before its consumer; where the receiver wants
// messages of a channel in another order than they are sent, the earlier ones are received with the
// first. A rank's stream is made from its own row and those of its neighbours alone.
//
// Buffers: a chunk's buffer is claimed by the first instruction of a micro batch, and free for
// another one after the last; when a gradient was sent from it, only once the rank can know that
// the peer has received it, or receives it next with nothing to compute or to wait for before. So
// no rank ever waits to write a buffer, the streams are as free of deadlock and as fast as the
// table is, whatever passes and transfers cost, and the number of buffers does not depend on the
// number of micro batches unless the order of the table does.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/table.h"

namespace penstock::schedule {

struct LoweringOptions {
  // Identity of the rows beyond name and shape, for tables that come from a file or a search.
  std::uint64_t content_hash = 0;
  // Forward only, where no gradient ever says that an activation has arrived: how many buffers a
  // chunk that sends takes before it waits for its peer instead of running further ahead; more only
  // as more micro batches are yet to be run there. With few of them, an order whose ranks run far
  // ahead of each other may lock, which verify() tells; "forward_only" never does with those that
  // the registry gives it. 0: no rank ever waits.
  int forward_buffers = 0;
};

// ScheduleError when the row cannot be lowered: a stage of another rank, a micro batch that does
// not exist, an action that is missing or there twice.
std::unique_ptr<Schedule> lower(std::string_view name, const RowSource& source, PipeRank rank,
                                const LoweringOptions& options = {});

// The streams of all ranks, in rank order.
std::vector<std::unique_ptr<Schedule>> lower_all(std::string_view name, const RowSource& source,
                                                 const LoweringOptions& options = {});

}  // namespace penstock::schedule
