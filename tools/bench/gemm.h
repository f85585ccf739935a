// Matrix products by the BLAS in use, alone: what a training step is compared with.
#pragma once

#include <cstdint>

namespace penstock::tools {

// Seconds of C[m, n] = A[m, k]·B[k, n] in f32 on one core, the median of several.
double gemm_seconds(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                    bool transpose_b);

}  // namespace penstock::tools
