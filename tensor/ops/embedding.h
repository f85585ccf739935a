// Look-ups of rows by id, and learned positions.
#pragma once

#include "tensor/context.h"
#include "tensor/ops/index_part.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Rows of a table: ids (i32 or i64, any shape) and table [V, C] give [ids…, C]. Each id lies in
// [0, V); InvalidArgument names the first that does not and its position. The table's gradient adds
// rows in the order of the ids, whatever the number of threads. Other errors: InvalidArgument for
// shapes and dtypes; Unsupported for a dtype or a device without a kernel.
Tensor embedding(Context& context, const Tensor& ids, const Tensor& table);

// The same with a part of the table: each id lies in [0, part.total), and gives a row of zeros when
// the table does not hold it, so that the sum over all parts is the row of the whole table.
Tensor embedding(Context& context, const Tensor& ids, const Tensor& table, const IndexPart& part);

// x [B, T, C] plus rows 0 … T − 1 of table [Tmax, C], for each of the B sequences; InvalidArgument
// when T > Tmax. Differentiable in both.
Tensor add_position(Context& context, const Tensor& x, const Tensor& table);

}  // namespace penstock::tensor
