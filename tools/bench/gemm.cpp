#include "tools/bench/gemm.h"

#include <algorithm>
#include <vector>

#include <cblas.h>

#include "tools/bench/measure.h"

namespace penstock::tools {

double gemm_seconds(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                    bool transpose_b) {
  openblas_set_num_threads(1);
  const std::vector<float> a(static_cast<std::size_t>(m * k), 1.0f);
  const std::vector<float> b(static_cast<std::size_t>(k * n), 1.0f);
  std::vector<float> c(static_cast<std::size_t>(m * n), 0.0f);
  const auto rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const auto product = [&] {
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, rows, columns, inner, 1.0f, a.data(),
                transpose_a ? rows : inner, b.data(), transpose_b ? inner : columns, 0.0f, c.data(),
                columns);
  };
  // Small products are repeated within a measurement, so that the clock's grain does not show.
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int inside = std::max(1, static_cast<int>(2e8 / flops));
  return median_seconds(5,
                        [&] {
                          for (int i = 0; i < inside; ++i) product();
                        }) /
         inside;
}

}  // namespace penstock::tools
