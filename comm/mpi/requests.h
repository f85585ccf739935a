// Requests: the transfers that one operation has started.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/mpi/mpi_api.h"

namespace penstock::comm::mpi {

// One end of a stream of MPI messages: messages between two ranks on one tag keep their order.
struct Lane {
  MPI_Comm comm = MPI_COMM_NULL;
  int peer = 0;
  int tag = 0;
};

// Bytes of any number travel, none at all too; more than an int can count go in several messages.
// The buffers must stay until done() is true. Destroying it with transfers under way happens only
// after an abort, when MPI is not called again.
class Requests {
 public:
  void send(const Lane& lane, const std::byte* data, std::size_t bytes);
  // Completes only after the receiver has posted the matching receive.
  void send_synchronous(const Lane& lane, const std::byte* data, std::size_t bytes);
  // Receives a message that a probe found.
  void receive_matched(MPI_Message message, std::byte* data, std::size_t bytes);
  void receive(const Lane& lane, std::byte* data, std::size_t bytes);

  // True once all have completed; never waits.
  bool done();

 private:
  MPI_Request* add();

  std::vector<MPI_Request> requests_;
};

}  // namespace penstock::comm::mpi
