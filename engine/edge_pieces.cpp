#include "engine/edge_pieces.h"

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/shape.h"
#include "tensor/tape.h"

namespace penstock::engine {

using schedule::StageId;
using tensor::Tensor;

EdgePieces edge_pieces(const Config& config, const schedule::StageMap& map, StageId stage) {
  const TensorParallelConfig& parallel = config.tensor_parallel;
  if (parallel.size == 1 || parallel.sequence_parallel) return {};
  const auto crosses = [&](int first) {
    return first >= 0 && first + 1 < map.num_stages() &&
           map.rank_of(StageId(first)) != map.rank_of(StageId(first + 1));
  };
  const bool before = crosses(stage.value - 1);
  const bool after = crosses(stage.value);
  const PipelineConfig& pipeline = config.pipeline;
  return {.inputs = before && pipeline.pipe_partitioned,
          .outputs = after && pipeline.pipe_partitioned,
          .input_grads = before && pipeline.grad_partitioned,
          .output_grads = after && pipeline.grad_partitioned};
}

tensor::Shape piece_shape(const model::ModelAxis& axis, const tensor::Shape& whole) {
  return {(whole.numel() + axis.size - 1) / axis.size};
}

Tensor own_piece(model::Context& context, const Tensor& whole) {
  const tensor::NoRecord no_record(context);
  const std::int64_t elements = whole.numel();
  const std::int64_t size = piece_shape(context.model, whole.shape()).numel();
  const std::int64_t begin = std::min(context.model.rank * size, elements);
  const std::int64_t end = std::min(begin + size, elements);
  const Tensor own = whole.view({elements}).rows(begin, end);
  if (end - begin == size) return tensor::copy(context, own);
  const Tensor fill = Tensor::zeros(context, {size - (end - begin)}, whole.dtype());
  return tensor::concat(context, std::vector{own, fill});
}

Tensor join_pieces(model::Context& context, const Tensor& piece, const tensor::Shape& whole) {
  const Tensor all = Tensor::empty(context, {context.model.size * piece.numel()}, piece.dtype());
  if (!piece.is_meta() && piece.numel() > 0) context.model_group->all_gather(piece, all).wait();
  return Tensor(all.storage(), all.byte_offset(), whole, piece.dtype());
}

}  // namespace penstock::engine
