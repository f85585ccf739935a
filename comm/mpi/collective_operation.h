// The steps of one collective over MPI, driven by progress; made of messages between two ranks, so
// that time-outs and aborts reach every wait and the bits equal those of ranks as threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/delay.h"
#include "comm/mpi/requests.h"
#include "comm/reduce.h"
#include "comm/work.h"

namespace penstock::comm::mpi {

// A group as its collectives see it.
struct Members {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> world_ranks;  // by group rank
  int rank = 0;

  int size() const { return static_cast<int>(world_ranks.size()); }
};

// First the members greet each other with their signatures, and with their contributions if those
// are small; a small collective is over then. Where contributions are large, follow
//   all_reduce      in pieces: send each member its slice, reduce mine, send that to all
//   reduce_scatter  in pieces: send each member its part, reduce mine
//   all_gather      send mine to all
//   broadcast       the root sends to all (and is the only one to greet)
// Pieces bound the memory for the others' contributions.
class CollectiveOperation final : public Operation {
 public:
  // `tag` and `tag` + 1 belong to this collective. Scratch memory comes from `memory`.
  CollectiveOperation(std::shared_ptr<const Members> members, int tag, CollectiveCall call,
                      std::shared_ptr<tensor::Allocator> memory);

  bool advance() override;
  std::string describe() const override;
  int missing_rank() const override;

 private:
  enum class State { kGreeting, kScattering, kGathering, kExchanging, kDone };
  struct Greeting {
    bool come = false;
    std::vector<std::byte> bytes;
  };

  // Calls fn for each member but this one.
  template <class Fn>
  void for_others(Fn fn) const;
  Lane lane(int member, int offset) const;

  void greet();
  bool hears(int member) const;
  // Starts to receive the greetings that have come; true once all are here.
  bool greeted();
  void check_greetings() const;
  // What a member gave with its greeting.
  const std::byte* staged_part(int member) const;
  void finish_staged();

  // What follows when the transfers of the present state are done.
  void next();
  void start_exchange();
  // A round over one piece: where the slice that belongs to a member lies in call_.in.
  std::size_t piece_elements() const;
  Slice slice(int member) const;
  void start_scatter();
  void reduce_mine();
  void start_gather();

  std::shared_ptr<const Members> members_;
  int tag_;
  CollectiveCall call_;  // emptied once complete
  Signature signature_;
  std::size_t width_;  // bytes of an element
  std::shared_ptr<tensor::Allocator> memory_;
  bool staged_;
  State state_ = State::kGreeting;
  Requests requests_;
  std::vector<Greeting> greetings_;  // by member; mine is what I send
  std::size_t piece_begin_ = 0;      // elements that are done (of each part, for reduce_scatter)
  tensor::Tensor scratch_;           // the others' contributions to my slice
  [[no_unique_address]] Delay delay_;
};

}  // namespace penstock::comm::mpi
