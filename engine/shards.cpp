#include "engine/shards.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "checkpoint/region_copy.h"
#include "tensor/transfer.h"

namespace penstock::engine {

namespace {

using checkpoint::Piece;
using checkpoint::Region;
using model::Shard;
using tensor::Shape;
using tensor::Tensor;

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw(), tensor.nbytes()};
}

// A shard as `outer` rows of `width` elements.
struct Rows {
  std::int64_t outer = 1;
  std::int64_t width = 1;
  std::int64_t inner = 1;  // elements per index of the axis

  explicit Rows(const Shard& shard) {
    const auto dims = shard.shape.dims();
    const auto axis = dims.begin() + shard.axis;
    const auto product = std::multiplies<>();
    outer = std::accumulate(dims.begin(), axis, std::int64_t{1}, product);
    inner = std::accumulate(axis + 1, dims.end(), std::int64_t{1}, product);
    width = *axis * inner;
  }
};

// The columns [first, first + count) of the rows, of which some elements are before a flat
// position.
std::int64_t columns_before(const Rows& rows, std::int64_t first, std::int64_t count,
                            std::int64_t position) {
  if (rows.width == 0) return 0;
  const std::int64_t row = position / rows.width;
  return row * count + std::clamp<std::int64_t>(position % rows.width - first, 0, count);
}

// One range of a shard, as far as the data has elements of it.
struct Part {
  Region region;
  std::int64_t first, count;  // columns
  std::int64_t begin, end;    // of the range's own elements
};

std::vector<Part> parts_of(const ShardData& what) {
  const Rows rows(what.shard);
  std::vector<Part> parts;
  for (const Shard::Range& range : what.shard.ranges) {
    const std::int64_t first = range.own * rows.inner;
    const std::int64_t count = range.count * rows.inner;
    const std::int64_t begin = columns_before(rows, first, count, what.begin);
    const std::int64_t end = columns_before(rows, first, count, what.begin + what.data.numel());
    if (begin == end) continue;
    const Region slice =
        Region::slice(what.whole, what.shard.axis, range.whole, range.whole + range.count);
    parts.push_back({slice.elements(begin, end), first, count, begin, end});
  }
  return parts;
}

// Calls copy(bytes of the data, bytes of the part packed, how many) for each run of elements.
template <class Copy>
void for_each_run(const ShardData& what, const Part& part, const Tensor& packed, const Copy& copy) {
  const Rows rows(what.shard);
  const std::size_t size = size_of(packed.dtype());
  for (std::int64_t at = part.begin; at < part.end;) {
    const std::int64_t row = at / part.count;
    const std::int64_t next = std::min((row + 1) * part.count, part.end);
    const std::int64_t own = row * rows.width + part.first + at % part.count - what.begin;
    copy(what.data.raw() + static_cast<std::size_t>(own) * size,
         packed.raw() + static_cast<std::size_t>(at - part.begin) * size,
         static_cast<std::size_t>(next - at) * size);
    at = next;
  }
}

Region whole_region(const ShardData& what) {
  return Region::whole(what.whole).elements(what.begin, what.begin + what.data.numel());
}

// Whether the data lies in the part's order.
bool is_packed(const ShardData& what, std::span<const Part> parts) {
  return parts.size() == 1 && parts[0].end - parts[0].begin == what.data.numel();
}

}  // namespace

std::vector<Piece> pieces_of(const tensor::Context& context, const std::string& name,
                             const ShardData& given) {
  ShardData from = given;
  from.data = tensor::to_host(context, given.data);
  if (from.shard.is_everything()) return {{name, from.whole, whole_region(from), from.data}};
  const std::vector<Part> parts = parts_of(from);
  if (is_packed(from, parts)) return {{name, from.whole, parts[0].region, from.data}};
  std::vector<Piece> pieces;
  for (const Part& part : parts) {
    const Tensor packed = Tensor::empty(context, {part.end - part.begin}, from.data.dtype());
    for_each_run(from, part, packed, [](std::byte* own, std::byte* piece, std::size_t bytes) {
      std::memcpy(piece, own, bytes);
    });
    pieces.push_back({name, from.whole, part.region, packed});
  }
  return pieces;
}

void read_shard(const tensor::Context& context, const checkpoint::Reader& reader,
                const std::string& name, const ShardData& to) {
  read_shard(
      context,
      [&](const Region& region, const Tensor& destination) {
        reader.read(name, region, destination);
      },
      to);
}

void read_shard(const tensor::Context& context, const ReadRegion& read, const ShardData& to) {
  if (to.data.device() != tensor::kCpuDevice) {
    ShardData on_host = to;
    on_host.data = Tensor::empty(context, to.data.shape(), to.data.dtype());
    read_shard(context, read, on_host);
    return tensor::write_elements(to.data, on_host.data);
  }
  if (to.shard.is_everything()) return read(whole_region(to), to.data);
  const std::vector<Part> parts = parts_of(to);
  if (is_packed(to, parts)) return read(parts[0].region, to.data);
  for (const Part& part : parts) {
    const Tensor packed = Tensor::empty(context, {part.end - part.begin}, to.data.dtype());
    read(part.region, packed);
    for_each_run(to, part, packed, [](std::byte* own, std::byte* piece, std::size_t bytes) {
      std::memcpy(own, piece, bytes);
    });
  }
}

Tensor gather_shards(const tensor::Context& context, comm::Communicator& group,
                     const model::Parameter& parameter, const Tensor& own) {
  const bool first = group.rank() == 0;
  const Tensor whole = first ? Tensor::empty(context, parameter.shape, own.dtype()) : Tensor();
  for (int member = 0; member < group.size(); ++member) {
    const Shard shard = model::shard_of(parameter.name, parameter.shape, parameter.split,
                                        {.size = group.size(), .rank = member});
    const Tensor part = Tensor::empty(context, shard.shape, own.dtype());
    if (member == group.rank()) own.storage()->allocator().download(bytes_of(part), own.raw());
    group.broadcast(part, member).wait();
    if (!first) continue;
    // The part is to the whole what a rank's data are to its pieces, the other way round.
    for (const Piece& piece : pieces_of(context, parameter.name, {parameter.shape, shard, part})) {
      checkpoint::write_region(whole, piece.region, piece.data);
    }
  }
  return whole;
}

}  // namespace penstock::engine
