// The errors of the whole project begin here: every layer above derives its own from these.
//
// Messages say a fact, what was expected, what was found, and what to do:
//   "[linear] expected x's last dimension to be 16 (weight [8, 16]), got 12 (x [4, 12])"
#pragma once

#include <stdexcept>
#include <string>

namespace penstock::tensor {

// Base of everything that Penstock throws, except what the standard library throws by itself
// and schedule::ScheduleError (that layer knows only the standard library).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller passed something that cannot be right: a shape, a dtype, an index, a name.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// The request is meaningful but this build or this version does not do it; the message says why
// and, where there is one, which CMake option or key gives it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// A device, its driver or one of its libraries failed; the message names the call and what it said.
// What the device holds is lost: the rank must give up.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A rule of Penstock's own code was broken: a bug here, not in the caller.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock::tensor
