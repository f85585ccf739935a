#include "comm/local/collective_operation.h"

#include <cstring>
#include <utility>

#include "comm/error.h"
#include "comm/reduce.h"

namespace penstock::comm::local {

CollectiveOperation::CollectiveOperation(std::shared_ptr<Group> group, std::uint64_t number,
                                         int member, CollectiveCall call)
    : group_(std::move(group)),
      member_(member),
      signature_(call.signature),
      staged_(is_staged(call.signature, group_->size())) {
  if (call.out.defined()) out_ = call.out.raw();
  meeting_ = group_->join(number, member, std::move(call));
  if (meeting_->failed.load(std::memory_order_acquire)) group_->ring_all();
  pass();
}

bool CollectiveOperation::advance() {
  while (meeting_ != nullptr) {
    // In this order: a member whose call differs marks the meeting failed before it counts as come,
    // so whoever finds all come sees the mark, and reads no part that was never given.
    const bool all_here = ready();
    if (meeting_->failed.load(std::memory_order_acquire)) throw CommError(meeting_->error);
    if (!all_here || delay_.holds()) return false;
    if (step()) {
      meeting_->calls[static_cast<std::size_t>(member_)] = {};
      meeting_.reset();
    } else {
      pass();
    }
  }
  return true;
}

std::string CollectiveOperation::describe() const {
  return comm::describe(signature_, group_->world_ranks());
}

int CollectiveOperation::missing_rank() const {
  if (meeting_ == nullptr) return -1;
  const bool broadcast = signature_.kind == CollectiveKind::kBroadcast;
  if (broadcast && member_ != signature_.root) return group_->world_rank(signature_.root);
  for (int member = 0; member < group_->size(); ++member) {
    if (meeting_->passed[static_cast<std::size_t>(member)].load(std::memory_order_acquire) <
        phase_) {
      return group_->world_rank(member);
    }
  }
  return -1;
}

bool CollectiveOperation::ready() const {
  if (signature_.kind == CollectiveKind::kBroadcast && phase_ == 1) {
    const auto root = static_cast<std::size_t>(signature_.root);
    return member_ == signature_.root ||
           meeting_->passed[root].load(std::memory_order_acquire) >= 1;
  }
  return meeting_->count[static_cast<std::size_t>(phase_ - 1)].load(std::memory_order_acquire) ==
         group_->size();
}

void CollectiveOperation::pass() {
  const auto phase = static_cast<std::size_t>(phase_++);
  meeting_->passed[static_cast<std::size_t>(member_)].store(phase_, std::memory_order_release);
  const bool last =
      meeting_->count[phase].fetch_add(1, std::memory_order_acq_rel) + 1 == group_->size();
  if (last || member_ == signature_.root) group_->ring_all();
}

bool CollectiveOperation::step() {
  const bool first = phase_ == 1;
  switch (signature_.kind) {
    case CollectiveKind::kAllReduce:
      if (first && staged_) {
        reduce_slice(out_, {0, signature_.elements});
        return true;
      }
      if (first) {
        const Slice mine = slice_of(signature_.elements, member_, group_->size());
        reduce_slice(out_ + mine.begin * tensor::size_of(signature_.dtype), mine);
      } else if (phase_ == 2) {
        copy_slices();
      }
      return phase_ == 3;
    case CollectiveKind::kReduceScatter:
      if (first) {
        const auto begin = static_cast<std::size_t>(member_) * signature_.elements;
        reduce_slice(out_, {begin, begin + signature_.elements});
      }
      return staged_ || !first;
    case CollectiveKind::kAllGather:
      if (first) copy_parts();
      return staged_ || !first;
    case CollectiveKind::kBroadcast:
      if (member_ == signature_.root) return staged_ || !first;
      if (signature_.elements > 0) {
        std::memcpy(out_, meeting_->parts[static_cast<std::size_t>(signature_.root)],
                    signature_.bytes());
      }
      pass();
      return true;
    case CollectiveKind::kBarrier:
      return true;
  }
  return true;
}

void CollectiveOperation::reduce_slice(std::byte* out, Slice slice) const {
  const std::size_t offset = slice.begin * tensor::size_of(signature_.dtype);
  std::vector<const std::byte*> contributions;
  for (const std::byte* part : meeting_->parts) contributions.push_back(part + offset);
  reduce(out, contributions, slice.size(), signature_.dtype, signature_.op);
}

void CollectiveOperation::copy_slices() const {
  const std::size_t width = tensor::size_of(signature_.dtype);
  for (int other = 0; other < group_->size(); ++other) {
    const Slice slice = slice_of(signature_.elements, other, group_->size());
    if (other == member_ || slice.size() == 0) continue;
    std::memcpy(out_ + slice.begin * width,
                meeting_->parts[static_cast<std::size_t>(other)] + slice.begin * width,
                slice.size() * width);
  }
}

void CollectiveOperation::copy_parts() const {
  const std::size_t bytes = signature_.bytes();
  if (bytes == 0) return;
  for (std::size_t other = 0; other < meeting_->parts.size(); ++other) {
    std::byte* out = out_ + other * bytes;
    if (out != meeting_->parts[other]) std::memcpy(out, meeting_->parts[other], bytes);
  }
}

}  // namespace penstock::comm::local
