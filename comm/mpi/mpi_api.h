// The one place that includes MPI, and the check of its return codes.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the old C++ bindings would be one more library to link
#define MPICH_SKIP_MPICXX 1
#include <string>
#include <string_view>

#include <mpi.h>

#include "comm/error.h"

namespace penstock::comm::mpi {

// Throws CommError with the call's text and MPI's words unless the code is MPI_SUCCESS.
inline void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw CommError("[mpi] " + std::string(call) +
                  " failed: " + std::string(text, static_cast<std::size_t>(length)) + " (code " +
                  std::to_string(code) + ")");
}

}  // namespace penstock::comm::mpi

// Calls MPI and throws CommError when it fails. All communicators return their errors.
#define PENSTOCK_MPI_CALL(call) ::penstock::comm::mpi::check_mpi((call), #call)
