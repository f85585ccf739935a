#include "tensor/cpu/embedding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "tensor/ops/check.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

// Calls function with the ids as a span of their own type.
template <class Function>
auto with_ids(const Tensor& ids, const Function& function) {
  return ids.dtype() == DType::kI32 ? function(ids.span<std::int32_t>())
                                    : function(ids.span<std::int64_t>());
}

}  // namespace

std::int64_t find_out_of_range(const Tensor& ids, std::int64_t limit) {
  return with_ids(ids, [limit](auto all) -> std::int64_t {
    const auto bad =
        std::ranges::find_if(all, [limit](std::int64_t id) { return id < 0 || id >= limit; });
    return bad == all.end() ? -1 : bad - all.begin();
  });
}

std::int64_t id_at(const Tensor& ids, std::int64_t position) {
  return with_ids(ids, [position](auto all) -> std::int64_t {
    return all[static_cast<std::size_t>(position)];
  });
}

void gather_rows(const Context& context, const Tensor& ids, const Tensor& table, std::int64_t first,
                 const Tensor& out) {
  const std::size_t bytes = static_cast<std::size_t>(table.dim(1)) * size_of(table.dtype());
  if (bytes == 0) return;
  constexpr std::size_t kChunkBytes = 1 << 16;
  const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kChunkBytes / bytes));
  with_ids(ids, [&](auto all) {
    parallel_chunks(context, ids.numel(), rows, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const std::int64_t row = static_cast<std::int64_t>(all[i]) - first;
        std::byte* const to = out.raw() + i * bytes;
        if (row >= 0 && row < table.dim(0)) {
          std::memcpy(to, table.raw() + static_cast<std::size_t>(row) * bytes, bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    });
  });
}

void scatter_rows(const Context& context, const char* op, const Tensor& ids, const Tensor& rows,
                  std::int64_t first, const Tensor& grad, bool accumulate) {
  // Threads share the columns, so that each sum is made by one thread in the order of the ids.
  constexpr std::int64_t kColumns = 128;
  const std::int64_t width = grad.dim(1);
  for_cpu_dtype(op, rows.dtype(), [&]<class T>(T) {
    const T* from = rows.data<T>();
    T* to = grad.data<T>();
    with_ids(ids, [&](auto all) {
      parallel_chunks(context, width, kColumns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; !accumulate && row < grad.dim(0); ++row) {
          std::fill(to + row * width + begin, to + row * width + end, T(0));
        }
        for (std::int64_t i = 0; i < ids.numel(); ++i) {
          const std::int64_t row =
              static_cast<std::int64_t>(all[static_cast<std::size_t>(i)]) - first;
          if (row < 0 || row >= grad.dim(0)) continue;
          const T* source = from + i * width;
          T* sum = to + row * width;
          for (std::int64_t j = begin; j < end; ++j) sum[j] += source[j];
        }
      });
    });
  });
}

}  // namespace penstock::tensor::cpu
