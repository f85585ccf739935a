// CPU kernels of the look-ups. Callers have checked shapes and dtypes.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

// The position of the first id outside of [0, limit), or -1.
std::int64_t find_out_of_range(const Tensor& ids, std::int64_t limit);
// The id at a position, i32 or i64.
std::int64_t id_at(const Tensor& ids, std::int64_t position);

// out[i] = table[ids[i] − first], rows, or zeros where the table has no such row; any dtype.
void gather_rows(const Context& context, const Tensor& ids, const Tensor& table, std::int64_t first,
                 const Tensor& out);

// grad[ids[i] − first] += rows[i] in the order of i, where grad has such a row, after zeroing grad
// unless `accumulate`. grad has the dtype of the rows, or f32 for rows of 16 bits.
void scatter_rows(const Context& context, const char* op, const Tensor& ids, const Tensor& rows,
                  std::int64_t first, const Tensor& grad, bool accumulate);

}  // namespace penstock::tensor::cpu
