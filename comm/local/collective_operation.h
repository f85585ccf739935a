// The steps of one collective on one rank of a local world, driven by progress.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/collective.h"
#include "comm/delay.h"
#include "comm/local/group.h"
#include "comm/reduce.h"
#include "comm/work.h"

namespace penstock::comm::local {

// Members read each other's tensors in place. Phases: called; then, where the contributions are not
// staged, the kind's work on them with a phase after each part of it, so that nobody's tensor is
// read after its operation has completed:
//   all_reduce      reduce my slice of all into mine | copy the others' slices
//   reduce_scatter  reduce my part of all
//   all_gather      copy all parts
//   broadcast       copy the root's
class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<Group> group, std::uint64_t number, int member,
                      CollectiveCall call);

  bool advance() override;
  std::string describe() const override;
  int missing_rank() const override;

 private:
  // Has every member whose data the next step needs passed the phases before it?
  bool ready() const;
  void pass();
  // Does the work between phase_ and the next; true when that was the last.
  bool step();
  void reduce_slice(std::byte* out, Slice slice) const;
  void copy_slices() const;
  void copy_parts() const;

  std::shared_ptr<Group> group_;
  int member_;
  Signature signature_;
  std::byte* out_ = nullptr;
  bool staged_;
  int phase_ = 0;                     // phases passed
  std::shared_ptr<Meeting> meeting_;  // null once complete
  [[no_unique_address]] Delay delay_;
};

}  // namespace penstock::comm::local
