// The error of everything that reads a configuration.
#pragma once

#include "tensor/error.h"

namespace penstock::engine {

// The configuration is wrong: a key, a type, a value, the batch arithmetic, or the file itself. The
// message carries the origin, the line, the full key path, and what would be accepted. Every rank
// that reads the same text throws the same message.
class ConfigError : public tensor::Error {
 public:
  using Error::Error;
};

}  // namespace penstock::engine
