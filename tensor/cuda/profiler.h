// Spans of a rank's work, by name, for NVIDIA's profilers (NVTX). Costs next to nothing without
// one.
#pragma once

namespace penstock::tensor::cuda {

// Spans of a thread nest.
void begin_span(const char* name) noexcept;
void end_span() noexcept;

}  // namespace penstock::tensor::cuda
