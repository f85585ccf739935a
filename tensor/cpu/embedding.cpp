#include "tensor/cpu/embedding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tensor/cpu/staged.h"
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

namespace {

// The row of a part of a table from `first` on that has an id, or -1.
std::int64_t row_of(std::int64_t id, std::int64_t first, std::int64_t rows) {
  const std::int64_t row = id - first;
  return row >= 0 && row < rows ? row : -1;
}

// Threads share the columns, so that each sum is made by one thread in the order of the ids.
constexpr std::int64_t kColumns = 128;

// Adds the columns [begin, end) of row i to sums + place(i) · stride, for all i whose place is not
// below 0.
template <class T, class Place>
void add_columns(const Tensor& rows, std::int64_t begin, std::int64_t end, Compute<T>* sums,
                 std::int64_t stride, const Place& place) {
  const std::int64_t width = rows.dim(-1);
  const T* from = rows.data<T>() + begin;
  float buffer[kColumns];
  for (std::int64_t i = 0; i < rows.numel() / width; ++i) {
    const std::int64_t row = place(static_cast<std::size_t>(i));
    if (row < 0) continue;
    const auto* source = stage(from + i * width, buffer, static_cast<std::size_t>(end - begin));
    Compute<T>* sum = sums + row * stride;
    for (std::int64_t j = 0; j < end - begin; ++j) sum[j] += source[j];
  }
}

// grad has the dtype of the sums, which are made in place.
template <class T>
void scatter_in_place(const Context& context, const Tensor& ids, const Tensor& rows,
                      std::int64_t first, const Tensor& grad, bool accumulate) {
  const std::int64_t width = grad.dim(1);
  auto* to = grad.data<Compute<T>>();
  with_ids(ids, [&](auto all) {
    parallel_chunks(context, width, kColumns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = 0; !accumulate && row < grad.dim(0); ++row) {
        std::fill(to + row * width + begin, to + row * width + end, Compute<T>(0));
      }
      add_columns<T>(rows, begin, end, to + begin, width,
                     [&](std::size_t i) { return row_of(all[i], first, grad.dim(0)); });
    });
  });
}

// The rows of grad that ids name, numbered in the order of their first place.
struct Named {
  std::vector<std::int64_t> rows;    // of grad
  std::vector<std::int64_t> places;  // into `rows`, for each id; -1 where grad has no such row
};

Named number_rows(const Tensor& ids, std::int64_t first, std::int64_t limit) {
  Named named;
  std::vector<std::int64_t> place_of(static_cast<std::size_t>(limit), -1);
  with_ids(ids, [&](auto all) {
    for (const auto id : all) {
      const std::int64_t row = row_of(id, first, limit);
      if (row >= 0 && place_of[static_cast<std::size_t>(row)] < 0) {
        place_of[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(named.rows.size());
        named.rows.push_back(row);
      }
      named.places.push_back(row < 0 ? -1 : place_of[static_cast<std::size_t>(row)]);
    }
  });
  return named;
}

// grad has 16 bits: the sums of the rows that the ids name are made in f32 and rounded once.
template <class T>
void scatter_rounded(const Context& context, const Tensor& ids, const Tensor& rows,
                     std::int64_t first, const Tensor& grad, bool accumulate) {
  const std::int64_t width = grad.dim(1);
  T* to = grad.data<T>();
  if (!accumulate) std::memset(grad.raw(), 0, grad.nbytes());
  const Named named = number_rows(ids, first, grad.dim(0));
  const auto count = static_cast<std::int64_t>(named.rows.size());
  parallel_chunks(context, width, kColumns, [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(end - begin);
    const Workspace<float> sums(context, count * (end - begin));
    const auto visit = [&](const auto& move) {
      float* sum = sums.data();
      for (const std::int64_t row : named.rows) {
        move(to + row * width + begin, sum);
        sum += size;
      }
    };
    visit([size](const T* row, float* sum) { widen(row, sum, size); });
    add_columns<T>(rows, begin, end, sums.data(), end - begin,
                   [&](std::size_t i) { return named.places[i]; });
    visit([size](T* row, const float* sum) { narrow(sum, row, size); });
  });
}

}  // namespace

void scatter_rows(const Context& context, const char* op, const Tensor& ids, const Tensor& rows,
                  std::int64_t first, const Tensor& grad, bool accumulate) {
  for_cpu_dtype(op, rows.dtype(), [&]<class T>(T) {
    if constexpr (kIsHalf<T>) {
      if (grad.dtype() == rows.dtype()) {
        return scatter_rounded<T>(context, ids, rows, first, grad, accumulate);
      }
    }
    scatter_in_place<T>(context, ids, rows, first, grad, accumulate);
  });
}

}  // namespace penstock::tensor::cpu
