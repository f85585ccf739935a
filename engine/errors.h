// How a collective call of the engine ends when it does not succeed.
#pragma once

#include <utility>

#include "comm/error.h"
#include "tensor/error.h"

namespace penstock::engine {

// The source has too few samples for the step. Thrown on every rank before anything changed; the
// engine stays usable: set_data() with a new source and go on.
class EndOfData : public tensor::Error {
 public:
  using Error::Error;
};

// The ranks do not agree on what to do, or one of them cannot do it. Thrown on every rank, with
// the same text, before anything changed.
class CallRefused : public tensor::Error {
 public:
  using Error::Error;
};

// An instruction failed on this rank. The world is aborted, the step is lost, and this engine
// refuses further calls: go on in a new World from the last checkpoint. The error that the
// instruction threw is nested inside.
class ExecutionError : public tensor::Error {
 public:
  explicit ExecutionError(comm::FailureCause cause)
      : Error(cause.to_string()), cause_(std::move(cause)) {}
  const comm::FailureCause& cause() const noexcept { return cause_; }

 private:
  comm::FailureCause cause_;
};

// The global gradient norm is not finite and the policy is to stop. Thrown on every rank; weights
// and optimizer state are as before the step.
class NonFiniteError : public tensor::Error {
 public:
  using Error::Error;
};

}  // namespace penstock::engine
