# What the libraries use from outside; docs/dependencies.md gives the Debian packages and reasons.
# penstockConfig.cmake.in repeats those that a consumer has to link.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(hwy REQUIRED)  # SIMD, chosen at run time
set(BLA_VENDOR OpenBLAS)    # its thread count can be set, which plain CBLAS does not offer
find_package(BLAS REQUIRED)
find_package(nlohmann_json REQUIRED)
if(PENSTOCK_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
if(PENSTOCK_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(PENSTOCK_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
