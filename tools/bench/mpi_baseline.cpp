#include "tools/bench/mpi_baseline.h"

#include <vector>

#include <mpi.h>

#include "tools/bench/measure.h"

namespace penstock::tools {

double mpi_one_way_seconds(std::int64_t bytes, int count) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // Two buffers, as two stages that exchange an activation and a gradient have.
  std::vector<unsigned char> sent(static_cast<std::size_t>(bytes));
  std::vector<unsigned char> received(static_cast<std::size_t>(bytes));
  const int peer = 1 - rank;
  const int size = static_cast<int>(bytes);
  const auto send = [&] { MPI_Send(sent.data(), size, MPI_BYTE, peer, 0, MPI_COMM_WORLD); };
  const auto receive = [&] {
    MPI_Recv(received.data(), size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  };
  return median_seconds(5,
                        [&] {
                          for (int i = 0; i < count; ++i) {
                            if (rank == 0) {
                              send();
                              receive();
                            } else {
                              receive();
                              send();
                            }
                          }
                        }) /
         (2.0 * count);
}

}  // namespace penstock::tools
