// The steps of communications whose tensors lie on a device and travel through memory of the host.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace penstock::comm::device {

// What the operations of one staged communicator share with it, and outlive it with.
struct Stage {
  World& world;
  std::shared_ptr<Communicator> host;         // carries what is on the host
  std::shared_ptr<tensor::Allocator> memory;  // of this rank's device
  std::shared_ptr<tensor::Allocator> pinned;  // of the host
  std::vector<int> world_ranks;               // of the members

  int world_rank(int member) const { return world_ranks[static_cast<std::size_t>(member)]; }
};

class Line;

// An operation that begins on the host once the device has computed what it takes there.
class Delayed : public Operation {
 public:
  ~Delayed() override;

  bool completed() const { return done_; }
  // Moves all of its line on, then itself.
  bool advance() final;
  bool awaits_device() const final { return !begun_; }
  int missing_rank() const final { return begun_ ? inner_.missing_rank() : -1; }

 protected:
  explicit Delayed(std::shared_ptr<Stage> stage) : stage_(std::move(stage)) {}

  // A copy on the host, which is there when begin() is called; by the constructor.
  tensor::Tensor start_download(const tensor::Tensor& tensor);

  virtual Work begin() = 0;
  // Called once, when the work that begin() has given is done. It may wait for the device, and this
  // operation be asked meanwhile how far it is.
  virtual void finish() = 0;

  const Stage& stage() const { return *stage_; }

 private:
  friend class Line;
  // Begins if it can; true once it has begun.
  bool try_begin();

  std::shared_ptr<Stage> stage_;
  std::shared_ptr<Line> line_;
  std::vector<tensor::Tensor> copies_;     // under way, which need their memory
  std::shared_ptr<tensor::Fence> copied_;  // null where there is nothing to wait for
  Work inner_;
  bool begun_ = false;
  bool finishing_ = false;
  bool done_ = false;
};

// Delayed operations that must begin in the order in which they were called, as on all ranks.
class Line : public std::enable_shared_from_this<Line> {
 public:
  void push(const std::shared_ptr<Delayed>& operation);
  void advance();

 private:
  bool advancing_ = false;
  // The world keeps them. When it was aborted it gives them up, begun or not; they know their line,
  // so a line that kept them would never let go of them, nor of the rank's memory.
  std::deque<std::weak_ptr<Delayed>> waiting_;
};

// A collective; of host tensors too, when it has to wait for those before it.
class StagedCollective final : public Delayed {
 public:
  StagedCollective(std::shared_ptr<Stage> stage, CollectiveCall call);

  std::string describe() const override;

 private:
  Work begin() override;
  void finish() override;
  bool is_root() const;

  CollectiveCall call_;
  tensor::Tensor in_;   // on the host
  tensor::Tensor out_;  // on the host
};

class StagedSend final : public Delayed {
 public:
  StagedSend(std::shared_ptr<Stage> stage, Message message, int peer, ChannelKind kind);

  std::string describe() const override;

 private:
  Work begin() override;
  void finish() override {}

  Message message_;                        // its tensors on the host
  std::vector<tensor::Tensor> originals_;  // on the device, until they are copied
  int peer_;
  ChannelKind kind_;
};

// What arrives in memory of the host goes on to the memory of a device.
class StagedReceive final : public ReceiveOperation {
 public:
  StagedReceive(std::shared_ptr<Stage> stage, ReceiveWork inner,
                std::shared_ptr<tensor::Allocator> memory, int peer, ChannelKind kind);

  bool advance() override { return inner_.advance(); }
  Message take() override;
  std::string describe() const override;
  int missing_rank() const override { return inner_.missing_rank(); }

 private:
  std::shared_ptr<Stage> stage_;
  ReceiveWork inner_;
  std::shared_ptr<tensor::Allocator> memory_;
  int peer_;
  ChannelKind kind_;
};

}  // namespace penstock::comm::device
