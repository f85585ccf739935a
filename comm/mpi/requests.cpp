#include "comm/mpi/requests.h"

#include <algorithm>

namespace penstock::comm::mpi {

namespace {

// Calls fn(offset, count) for pieces that an int can count; once with 0 for no bytes.
template <class Fn>
void for_each_piece(std::size_t bytes, Fn fn) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  std::size_t offset = 0;
  do {
    const std::size_t count = std::min(kPiece, bytes - offset);
    fn(offset, static_cast<int>(count));
    offset += count;
  } while (offset < bytes);
}

}  // namespace

MPI_Request* Requests::add() {
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void Requests::send(const Lane& lane, const std::byte* data, std::size_t bytes) {
  for_each_piece(bytes, [&](std::size_t offset, int count) {
    PENSTOCK_MPI_CALL(
        MPI_Isend(data + offset, count, MPI_BYTE, lane.peer, lane.tag, lane.comm, add()));
  });
}

void Requests::send_synchronous(const Lane& lane, const std::byte* data, std::size_t bytes) {
  for_each_piece(bytes, [&](std::size_t offset, int count) {
    PENSTOCK_MPI_CALL(
        MPI_Issend(data + offset, count, MPI_BYTE, lane.peer, lane.tag, lane.comm, add()));
  });
}

void Requests::receive(const Lane& lane, std::byte* data, std::size_t bytes) {
  for_each_piece(bytes, [&](std::size_t offset, int count) {
    PENSTOCK_MPI_CALL(
        MPI_Irecv(data + offset, count, MPI_BYTE, lane.peer, lane.tag, lane.comm, add()));
  });
}

void Requests::receive_matched(MPI_Message message, std::byte* data, std::size_t bytes) {
  PENSTOCK_MPI_CALL(MPI_Imrecv(data, static_cast<int>(bytes), MPI_BYTE, &message, add()));
}

bool Requests::done() {
  if (requests_.empty()) return true;
  int all = 0;
  PENSTOCK_MPI_CALL(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE));
  if (all != 0) requests_.clear();
  return all != 0;
}

}  // namespace penstock::comm::mpi
