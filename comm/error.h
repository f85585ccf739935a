// What goes wrong between ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tensor/error.h"

namespace penstock::comm {

class CommError : public tensor::Error {
 public:
  using Error::Error;
};

// A wait ran past the world's time-out; the message names what was waited for and from whom.
class TimedOut : public CommError {
 public:
  using CommError::CommError;
};

// Where and why a run failed first. Fields that are not known are -1 or empty.
struct FailureCause {
  int rank = -1;
  int stage = -1;
  std::string instruction{};  // "ForwardPass(c0 m3 b1)"
  std::int64_t micro_batch = -1;
  std::string message{};

  // "rank 2 (stage 2, ForwardPass(c0 m3 b1), micro batch 3): message"
  std::string to_string() const;
};

// Another rank failed, or left, and this one cannot go on. After it the World is dead.
class PeerLost : public CommError {
 public:
  explicit PeerLost(FailureCause cause)
      : CommError("peer lost: " + cause.to_string()), cause_(std::move(cause)) {}
  const FailureCause& cause() const noexcept { return cause_; }

 private:
  FailureCause cause_;
};

}  // namespace penstock::comm
