#include "engine/pipe_memory.h"

#include <algorithm>
#include <numeric>

namespace penstock::engine {

namespace {

// The place of the first reason to hold; kNumHoldings when there is none.
std::size_t first_reason(const Holders& holders) {
  const auto* const found =
      std::ranges::find_if(holders, [](std::uint16_t count) { return count > 0; });
  return static_cast<std::size_t>(found - holders.begin());
}

}  // namespace

std::int64_t PipeBytes::total() const {
  return std::accumulate(by_holding.begin(), by_holding.end(), std::int64_t{0});
}

void PipeBytesSum::hold(Holders& holders, std::int64_t bytes, Holding holding) {
  const std::size_t before = first_reason(holders);
  ++holders[static_cast<std::size_t>(holding)];
  const std::size_t after = first_reason(holders);
  if (before < kNumHoldings) now_.by_holding[before] -= bytes;
  now_.by_holding[after] += bytes;
}

void PipeBytesSum::drop(Holders& holders, std::int64_t bytes, Holding holding) {
  const std::size_t before = first_reason(holders);
  --holders[static_cast<std::size_t>(holding)];
  const std::size_t after = first_reason(holders);
  now_.by_holding[before] -= bytes;
  if (after < kNumHoldings) now_.by_holding[after] += bytes;
}

void PipeBytesSum::hold(const PipeBytes& bytes) {
  for (std::size_t i = 0; i < kNumHoldings; ++i) now_.by_holding[i] += bytes.by_holding[i];
}

void PipeBytesSum::drop(const PipeBytes& bytes) {
  for (std::size_t i = 0; i < kNumHoldings; ++i) now_.by_holding[i] -= bytes.by_holding[i];
}

void PipeBytesSum::note() {
  const std::int64_t total = now_.total();
  if (total <= peak_total_) return;
  peak_total_ = total;
  peak_ = now_;
}

}  // namespace penstock::engine
