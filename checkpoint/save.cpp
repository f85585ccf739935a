// Saving at once.
#include <atomic>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"

namespace penstock::checkpoint {

Piece Piece::whole(std::string name, tensor::Tensor data) {
  Piece piece{std::move(name), data.shape(), Region::whole(data.shape()), data};
  return piece;
}

SaveResult save(comm::World& world, const SaveRequest& request, FileSystem& file_system) {
  const std::atomic<bool> never = false;
  Saver saver(world, request, file_system);
  try {
    saver.prepare();
    saver.write(never);
    saver.exchange();
    saver.publish();
    return saver.finish();
  } catch (const FileError&) {
    saver.clean_up();
    throw;
  }
}

}  // namespace penstock::checkpoint
