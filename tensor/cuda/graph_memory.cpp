#include "tensor/cuda/graph_memory.h"

#include <algorithm>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

GraphMemory::~GraphMemory() {
  for (const auto& [block, about] : blocks_) {
    cudaFreeAsync(const_cast<void*>(block), stream_.get());
  }
}

void GraphMemory::begin_trial() {
  stage_ = Stage::kTrial;
  trial_.clear();
}

void GraphMemory::begin() {
  stage_ = Stage::kGraph;
  for_graph_.clear();
}

void GraphMemory::end() noexcept {
  for (const void* block : for_graph_) blocks_.at(block).written = true;
  for_graph_.clear();
  stage_ = Stage::kNone;
}

void* GraphMemory::take(std::size_t bytes) {
  constexpr std::size_t kUnit = 512;  // sizes that differ by little share blocks
  const std::size_t wanted = std::max<std::size_t>((bytes + kUnit - 1) / kUnit, 1) * kUnit;
  bool lasts = true;
  if (stage_ == Stage::kGraph) {
    const std::size_t index = for_graph_.size();
    if (index >= trial_.size() || trial_[index].bytes != wanted) {
      throw InternalError(
          "[graphs] work allocated something else when it was captured a second time");
    }
    lasts = trial_[index].lasts;
  }
  auto block = lasts ? blocks_.end() : find(wanted, /*written=*/true);
  if (block == blocks_.end()) block = find(wanted, /*written=*/false);
  if (block == blocks_.end()) block = allocate(wanted);
  if (block == blocks_.end()) return nullptr;
  block->second.taken = true;
  if (stage_ == Stage::kTrial) trial_.push_back({block->first, wanted, true});
  if (stage_ == Stage::kGraph) for_graph_.push_back(block->first);
  return const_cast<void*>(block->first);
}

// The smallest that is free and not far too large.
GraphMemory::Blocks::iterator GraphMemory::find(std::size_t bytes, bool written) {
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    const Block& block = it->second;
    if (block.taken || block.written != written) continue;
    if (block.bytes < bytes || block.bytes > 2 * bytes) continue;
    if (best == blocks_.end() || block.bytes < best->second.bytes) best = it;
  }
  return best;
}

// On a stream of its own: on the one that is captured it would be a part of the graph, and
// cudaMalloc may wait for all that the device does, transfers that need this rank among it.
GraphMemory::Blocks::iterator GraphMemory::allocate(std::size_t bytes) {
  if (stream_ == nullptr) stream_ = make_stream();
  void* fresh = nullptr;
  const cudaError_t status = cudaMallocAsync(&fresh, bytes, stream_.get());
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch would report it
    return blocks_.end();
  }
  check(status, "cudaMallocAsync");
  check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");  // nothing else is on it
  bytes_ += static_cast<std::int64_t>(bytes);
  return blocks_.emplace(fresh, Block{bytes, false, false}).first;
}

bool GraphMemory::give_back(void* block) noexcept {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  found->second.taken = false;
  if (stage_ != Stage::kTrial) return true;
  const auto taken = std::find_if(trial_.rbegin(), trial_.rend(),
                                  [block](const Taken& of) { return of.block == block; });
  if (taken != trial_.rend()) taken->lasts = false;
  return true;
}

bool GraphMemory::contains(const void* block) const noexcept {
  return blocks_.find(block) != blocks_.end();
}

}  // namespace penstock::tensor::cuda
