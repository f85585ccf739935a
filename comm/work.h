// Work: a handle of a started communication.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "comm/message.h"

namespace penstock::comm {

class World;

// One communication under way, as a backend implements it. It owns its buffers until it is done.
// Shared between the caller's handle and the world, which moves it on in progress().
class Operation {
 public:
  virtual ~Operation() = default;
  // Moves on as far as possible without waiting; true once complete. Throws CommError.
  virtual bool advance() = 0;
  // For time-out messages: "all_reduce of 1024 f32 over ranks 0, 1, 2, 3".
  virtual std::string describe() const = 0;
  // The world rank whose part is missing, when one is known, else -1.
  virtual int missing_rank() const { return -1; }
  // True while it waits for a device, which wakes nobody: a rank that sleeps must look again.
  virtual bool awaits_device() const { return false; }
};

// Belongs to the rank's thread. Dropping a Work that is not done is allowed: the world keeps the
// operation, with its buffers, until it completes.
class Work {
 public:
  Work() = default;  // already done
  Work(World& world, std::shared_ptr<Operation> operation)
      : world_(&world), operation_(std::move(operation)) {}

  // True once complete; never waits.
  bool done();
  // Waits until complete. Throws TimedOut or PeerLost.
  void wait();
  // For operations that are made of others: done(), but nothing else is moved on.
  bool advance();
  // As Operation::missing_rank().
  int missing_rank() const { return operation_ == nullptr ? -1 : operation_->missing_rank(); }

 private:
  World* world_ = nullptr;
  std::shared_ptr<Operation> operation_;
};

// A receive under way.
class ReceiveOperation : public Operation {
 public:
  // Valid once, after advance() returned true. The tensors are unknown to any tape and are charged
  // to the receiving rank.
  virtual Message take() = 0;
};

class ReceiveWork {
 public:
  ReceiveWork() = default;
  ReceiveWork(World& world, std::shared_ptr<ReceiveOperation> operation)
      : world_(&world), operation_(std::move(operation)) {}

  bool done();
  // Waits and hands over the message; the work is empty afterwards.
  Message wait();
  // For operations that are made of others: done(), but nothing else is moved on; once true, take()
  // is wait().
  bool advance();
  Message take();
  int missing_rank() const { return operation_ == nullptr ? -1 : operation_->missing_rank(); }

 private:
  void check_started() const;

  World* world_ = nullptr;
  std::shared_ptr<ReceiveOperation> operation_;
};

}  // namespace penstock::comm
