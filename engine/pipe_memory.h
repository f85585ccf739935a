// Bytes that the pipe buffers of a rank hold, measured and planned by the same rules.
//
// A storage counts once per rank, however many tensors look into it, with all of its bytes; weights
// and their gradients, which have memory of their own, never count. What was sent counts until the
// transfer is over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::engine {

// Why a storage is held. One that is held for several reasons counts for the first of them.
enum class Holding : std::uint8_t {
  kTape,       // saved by the forward, for the backward
  kData,       // inputs, outputs and labels of a stage
  kGradients,  // of inputs and outputs, and what a split backward keeps for its weight part
  kInFlight,   // sent and not yet received
};
inline constexpr std::size_t kNumHoldings = 4;

struct PipeBytes {
  std::array<std::int64_t, kNumHoldings> by_holding{};

  std::int64_t& operator[](Holding holding) {
    return by_holding[static_cast<std::size_t>(holding)];
  }
  std::int64_t operator[](Holding holding) const {
    return by_holding[static_cast<std::size_t>(holding)];
  }
  std::int64_t total() const;
  bool operator==(const PipeBytes&) const = default;
};

// How often one storage is held, by reason.
using Holders = std::array<std::uint16_t, kNumHoldings>;

// The sums over all storages, and the moment of the largest total.
class PipeBytesSum {
 public:
  // One more, one less reason to hold a storage of so many bytes.
  void hold(Holders& holders, std::int64_t bytes, Holding holding);
  void drop(Holders& holders, std::int64_t bytes, Holding holding);
  // Storages that nothing else holds, all together.
  void hold(const PipeBytes& bytes);
  void drop(const PipeBytes& bytes);
  // To be called when an instruction is over: keeps the first of the largest totals.
  void note();

  const PipeBytes& now() const { return now_; }
  const PipeBytes& peak() const { return peak_; }

 private:
  PipeBytes now_, peak_;
  std::int64_t peak_total_ = 0;
};

}  // namespace penstock::engine
