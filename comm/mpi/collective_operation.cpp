#include "comm/mpi/collective_operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/error.h"

namespace penstock::comm::mpi {

namespace {

// Large enough that the latency of a round does not count, small enough for the scratch memory.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

std::size_t index(int member) {
  return static_cast<std::size_t>(member);
}

}  // namespace

template <class Fn>
void CollectiveOperation::for_others(Fn fn) const {
  for (int member = 0; member < members_->size(); ++member) {
    if (member != members_->rank) fn(member);
  }
}

CollectiveOperation::CollectiveOperation(std::shared_ptr<const Members> members, int tag,
                                         CollectiveCall call,
                                         std::shared_ptr<tensor::Allocator> memory)
    : members_(std::move(members)),
      tag_(tag),
      call_(std::move(call)),
      signature_(call_.signature),
      width_(tensor::size_of(signature_.dtype)),
      memory_(std::move(memory)),
      staged_(is_staged(signature_, members_->size())),
      greetings_(index(members_->size())) {
  greet();
}

bool CollectiveOperation::advance() {
  while (state_ != State::kDone) {
    if (state_ == State::kGreeting ? !greeted() : !requests_.done()) return false;
    if (delay_.holds()) return false;
    next();
  }
  return true;
}

std::string CollectiveOperation::describe() const {
  return comm::describe(signature_, members_->world_ranks);
}

int CollectiveOperation::missing_rank() const {
  if (state_ != State::kGreeting) return -1;
  for (int member = 0; member < members_->size(); ++member) {
    if (hears(member) && !greetings_[index(member)].come) {
      return members_->world_ranks[index(member)];
    }
  }
  return -1;
}

Lane CollectiveOperation::lane(int member, int offset) const {
  return {members_->comm, members_->world_ranks[index(member)], tag_ + offset};
}

// Greetings.

void CollectiveOperation::greet() {
  const bool broadcast = signature_.kind == CollectiveKind::kBroadcast;
  if (broadcast && members_->rank != signature_.root) return;
  std::vector<std::byte>& bytes = greetings_[index(members_->rank)].bytes;
  bytes.resize(sizeof(Signature));
  std::memcpy(bytes.data(), &signature_, sizeof(Signature));
  if (staged_ && signature_.elements > 0) {
    const std::byte* part = call_.in.raw();
    bytes.insert(bytes.end(), part, part + contribution_bytes(signature_, members_->size()));
  }
  for_others([&](int member) { requests_.send(lane(member, 0), bytes.data(), bytes.size()); });
}

bool CollectiveOperation::hears(int member) const {
  if (member == members_->rank) return false;
  if (signature_.kind != CollectiveKind::kBroadcast) return true;
  return member == signature_.root;
}

bool CollectiveOperation::greeted() {
  bool all = true;
  for (int member = 0; member < members_->size(); ++member) {
    Greeting& greeting = greetings_[index(member)];
    if (greeting.come || !hears(member)) continue;
    const Lane from = lane(member, 0);
    int here = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    PENSTOCK_MPI_CALL(MPI_Improbe(from.peer, from.tag, from.comm, &here, &message, &status));
    if (here == 0) {
      all = false;
      continue;
    }
    int bytes = 0;
    PENSTOCK_MPI_CALL(MPI_Get_count(&status, MPI_BYTE, &bytes));
    greeting.bytes.resize(static_cast<std::size_t>(bytes));
    requests_.receive_matched(message, greeting.bytes.data(), greeting.bytes.size());
    greeting.come = true;
  }
  if (!all || !requests_.done()) return false;
  check_greetings();
  return true;
}

void CollectiveOperation::check_greetings() const {
  const std::size_t part = staged_ ? contribution_bytes(signature_, members_->size()) : 0;
  for (int member = 0; member < members_->size(); ++member) {
    if (!hears(member)) continue;
    const std::vector<std::byte>& bytes = greetings_[index(member)].bytes;
    Signature theirs;
    if (bytes.size() >= sizeof theirs) std::memcpy(&theirs, bytes.data(), sizeof theirs);
    if (theirs != signature_ || bytes.size() != sizeof theirs + part) {
      throw CommError(mismatch_text(members_->world_ranks[index(members_->rank)], signature_,
                                    members_->world_ranks[index(member)], theirs));
    }
  }
}

const std::byte* CollectiveOperation::staged_part(int member) const {
  return greetings_[index(member)].bytes.data() + sizeof(Signature);
}

void CollectiveOperation::finish_staged() {
  const bool reduces = signature_.kind == CollectiveKind::kAllReduce ||
                       signature_.kind == CollectiveKind::kReduceScatter;
  const bool broadcast = signature_.kind == CollectiveKind::kBroadcast;
  if (signature_.elements == 0 || (broadcast && members_->rank == signature_.root)) return;
  std::byte* out = call_.out.raw();
  if (broadcast) {
    std::memcpy(out, staged_part(signature_.root), signature_.bytes());
  } else if (reduces) {
    const bool scatter = signature_.kind == CollectiveKind::kReduceScatter;
    const std::size_t offset = scatter ? index(members_->rank) * signature_.bytes() : 0;
    std::vector<const std::byte*> parts;
    for (int member = 0; member < members_->size(); ++member) {
      parts.push_back(staged_part(member) + offset);
    }
    reduce(out, parts, signature_.elements, signature_.dtype, signature_.op);
  } else {
    for (int member = 0; member < members_->size(); ++member) {
      std::memcpy(out + index(member) * signature_.bytes(), staged_part(member),
                  signature_.bytes());
    }
  }
}

// Large contributions.

void CollectiveOperation::next() {
  switch (state_) {
    case State::kGreeting:
      if (staged_) {
        finish_staged();
        break;
      }
      if (signature_.kind == CollectiveKind::kAllGather ||
          signature_.kind == CollectiveKind::kBroadcast) {
        return start_exchange();
      }
      return start_scatter();
    case State::kScattering:
      reduce_mine();
      if (signature_.kind == CollectiveKind::kAllReduce) return start_gather();
      [[fallthrough]];
    case State::kGathering:
      piece_begin_ += piece_elements();
      if (piece_begin_ < signature_.elements) return start_scatter();
      break;
    case State::kExchanging:
    case State::kDone:
      break;
  }
  state_ = State::kDone;
  call_ = {};
  scratch_ = {};
}

void CollectiveOperation::start_exchange() {
  state_ = State::kExchanging;
  const std::size_t bytes = signature_.bytes();
  std::byte* out = call_.out.raw();
  if (signature_.kind == CollectiveKind::kBroadcast) {
    if (members_->rank == signature_.root) {
      for_others([&](int member) { requests_.send(lane(member, 1), out, bytes); });
    } else {
      requests_.receive(lane(signature_.root, 1), out, bytes);
    }
    return;
  }
  const std::byte* in = call_.in.raw();
  std::byte* mine = out + index(members_->rank) * bytes;
  for_others([&](int member) {
    requests_.receive(lane(member, 1), out + index(member) * bytes, bytes);
    requests_.send(lane(member, 1), in, bytes);
  });
  if (mine != in) std::memcpy(mine, in, bytes);
}

std::size_t CollectiveOperation::piece_elements() const {
  std::size_t limit = kPieceBytes / width_;
  if (signature_.kind == CollectiveKind::kReduceScatter) {
    limit = std::max<std::size_t>(1, limit / index(members_->size()));
  }
  return std::min<std::size_t>(limit, signature_.elements - piece_begin_);
}

Slice CollectiveOperation::slice(int member) const {
  Slice result = {0, piece_elements()};
  std::size_t begin = piece_begin_;
  if (signature_.kind == CollectiveKind::kAllReduce) {
    result = slice_of(piece_elements(), member, members_->size());
  } else {
    begin += index(member) * signature_.elements;
  }
  return {begin + result.begin, begin + result.end};
}

void CollectiveOperation::start_scatter() {
  state_ = State::kScattering;
  const std::size_t bytes = slice(members_->rank).size() * width_;
  const auto scratch_bytes = static_cast<std::int64_t>(bytes) * (members_->size() - 1);
  if (!scratch_.defined() || scratch_.numel() < scratch_bytes) {
    scratch_ = tensor::Tensor::empty(memory_, {scratch_bytes}, tensor::DType::kU8);
  }
  std::byte* room = scratch_.raw();
  for_others([&](int member) {
    requests_.receive(lane(member, 1), room, bytes);
    room += bytes;
    const Slice theirs = slice(member);
    requests_.send(lane(member, 1), call_.in.raw() + theirs.begin * width_, theirs.size() * width_);
  });
}

void CollectiveOperation::reduce_mine() {
  const Slice mine = slice(members_->rank);
  std::vector<const std::byte*> parts;
  const std::byte* room = scratch_.raw();
  for (int member = 0; member < members_->size(); ++member) {
    if (member == members_->rank) {
      parts.push_back(call_.in.raw() + mine.begin * width_);
    } else {
      parts.push_back(room);
      room += mine.size() * width_;
    }
  }
  const bool scatter = signature_.kind == CollectiveKind::kReduceScatter;
  reduce(call_.out.raw() + (scatter ? piece_begin_ : mine.begin) * width_, parts, mine.size(),
         signature_.dtype, signature_.op);
}

void CollectiveOperation::start_gather() {
  state_ = State::kGathering;
  std::byte* out = call_.out.raw();
  const Slice mine = slice(members_->rank);
  for_others([&](int member) {
    const Slice theirs = slice(member);
    requests_.receive(lane(member, 1), out + theirs.begin * width_, theirs.size() * width_);
    requests_.send(lane(member, 1), out + mine.begin * width_, mine.size() * width_);
  });
}

}  // namespace penstock::comm::mpi
