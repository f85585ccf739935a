#include "tensor/cuda/room.h"

#include <cstddef>

#include <cuda_runtime.h>

namespace penstock::tensor::cuda {

std::string room_left() {
  int device = 0;
  std::size_t available = 0, total = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaMemGetInfo(&available, &total) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would report it
    return " on a CUDA device";
  }
  return " on cuda:" + std::to_string(device) + ", where " + std::to_string(available) + " of " +
         std::to_string(total) + " bytes are free";
}

}  // namespace penstock::tensor::cuda
