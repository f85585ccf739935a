// What goes wrong with files.
#pragma once

#include "tensor/error.h"

namespace penstock::checkpoint {

// A file or directory is missing, cannot be written, or does not hold what it must. The message
// names the file, the tensor where there is one, and the check that failed.
class FileError : public tensor::Error {
 public:
  using Error::Error;
};

}  // namespace penstock::checkpoint
