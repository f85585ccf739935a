#include "comm/nccl/connect.h"

#include <cstring>

#include "comm/nccl/check.h"
#include "tensor/allocator.h"

namespace penstock::comm::nccl {

std::vector<Channel> channels_of(Links links, int size) {
  std::vector<Channel> channels;
  if (links == Links::kNone) return channels;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const bool neighbours = b == a + 1 || (a == 0 && b == size - 1);
      if (links == Links::kNeighbours && !neighbours) continue;
      for (const ChannelKind kind : {ChannelKind::kActivation, ChannelKind::kGradient}) {
        channels.push_back({.from = a, .to = b, .kind = kind});
        channels.push_back({.from = b, .to = a, .kind = kind});
      }
    }
  }
  return channels;
}

std::vector<ncclUniqueId> agree_on_ids(Communicator& host, const std::vector<Channel>& channels) {
  const std::size_t count = channels.size() + 1;
  std::vector<ncclUniqueId> ids(count);
  const tensor::Tensor all = tensor::Tensor::zeros(
      tensor::Context(tensor::make_cpu_allocator()),
      {static_cast<std::int64_t>(count * sizeof(ncclUniqueId))}, tensor::DType::kU8);
  for (std::size_t i = 0; i < count; ++i) {
    const int maker = i < channels.size() ? channels[i].from : 0;
    if (maker != host.rank()) continue;
    check(ncclGetUniqueId(&ids[i]), "ncclGetUniqueId");
    std::memcpy(all.raw() + i * sizeof(ncclUniqueId), &ids[i], sizeof(ncclUniqueId));
  }
  host.all_reduce(all, ReduceOp::kMax).wait();  // the others have zeros there
  std::memcpy(ids.data(), all.raw(), all.nbytes());
  return ids;
}

}  // namespace penstock::comm::nccl
