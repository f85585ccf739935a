#include "engine/async_save.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "tensor/allocator.h"

namespace penstock::engine {

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void AsyncSave::copy_into_own_memory(checkpoint::SaveRequest& request) {
  std::size_t bytes = 0;
  for (const checkpoint::FilePlan& file : request.files) {
    for (const checkpoint::Piece& piece : file.pieces) bytes += aligned(piece.data.nbytes());
  }
  if (!memory_.defined() || memory_.nbytes() < bytes) {
    memory_ = {};  // first, so that there is never room for two
    memory_ = tensor::Tensor::empty(tensor::make_cpu_allocator(),
                                    {static_cast<std::int64_t>(bytes)}, tensor::DType::kU8);
  }
  std::size_t offset = 0;
  for (checkpoint::FilePlan& file : request.files) {
    for (checkpoint::Piece& piece : file.pieces) {
      const tensor::Tensor copy(memory_.storage(), memory_.byte_offset() + offset,
                                piece.data.shape(), piece.data.dtype());
      if (copy.nbytes() > 0) std::memcpy(copy.raw(), piece.data.raw(), copy.nbytes());
      offset += aligned(copy.nbytes());
      piece.data = copy;
    }
  }
}

void AsyncSave::begin(comm::World& world, checkpoint::SaveRequest request) {
  pending_ = std::make_unique<checkpoint::PendingSave>(world, std::move(request));
}

std::optional<checkpoint::SaveResult> AsyncSave::advance() {
  try {
    std::optional<checkpoint::SaveResult> result = pending_->advance();
    if (result) pending_.reset();
    return result;
  } catch (const checkpoint::FileError&) {
    pending_.reset();
    throw;
  }
}

checkpoint::SaveResult AsyncSave::finish() {
  try {
    checkpoint::SaveResult result = pending_->finish();
    pending_.reset();
    return result;
  } catch (const checkpoint::FileError&) {
    pending_.reset();
    throw;
  }
}

}  // namespace penstock::engine
