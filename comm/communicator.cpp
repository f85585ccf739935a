#include "comm/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "comm/collective.h"
#include "tensor/allocator.h"

namespace penstock::comm {

namespace {

using tensor::Tensor;

template <class T>
void all_reduce_values(Communicator& group, const std::shared_ptr<tensor::Allocator>& memory,
                       std::span<T> values, ReduceOp op) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor tensor = Tensor::empty(memory, {count}, tensor::dtype_of<T>());
  std::copy(values.begin(), values.end(), tensor.data<T>());
  group.all_reduce(tensor, op).wait();
  std::copy_n(tensor.data<T>(), values.size(), values.begin());
}

}  // namespace

Communicator::Communicator() : host_memory_(tensor::make_cpu_allocator()) {}

void Communicator::all_reduce_wait(std::span<std::int64_t> values, ReduceOp op) {
  all_reduce_values(*this, host_memory_, values, op);
}

void Communicator::all_reduce_wait(std::span<double> values, ReduceOp op) {
  all_reduce_values(*this, host_memory_, values, op);
}

std::vector<std::int64_t> Communicator::all_gather_wait(std::span<const std::int64_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor in = Tensor::empty(host_memory_, {count}, tensor::DType::kI64);
  const Tensor out = Tensor::empty(host_memory_, {size(), count}, tensor::DType::kI64);
  std::copy(values.begin(), values.end(), in.data<std::int64_t>());
  all_gather(in, out).wait();
  const auto all = out.span<std::int64_t>();
  return {all.begin(), all.end()};
}

std::vector<std::string> Communicator::all_gather_text(std::string_view text) {
  const auto length = static_cast<std::int64_t>(text.size());
  const std::vector<std::int64_t> lengths = all_gather_wait({&length, 1});
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const Tensor in = Tensor::empty(host_memory_, {longest}, tensor::DType::kU8);
  const Tensor out = Tensor::empty(host_memory_, {size(), longest}, tensor::DType::kU8);
  if (longest > 0) std::memset(in.raw(), 0, in.nbytes());
  if (!text.empty()) std::memcpy(in.raw(), text.data(), text.size());
  all_gather(in, out).wait();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    const auto* begin = reinterpret_cast<const char*>(out.raw() + rank * longest);
    texts.emplace_back(begin, static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
  }
  return texts;
}

std::string by_rank(std::span<const std::string> texts) {
  std::string result;
  for (std::size_t first = 0; first < texts.size(); ++first) {
    const std::string& text = texts[first];
    const auto before = texts.first(first);
    if (text.empty() || std::ranges::find(before, text) != before.end()) continue;
    std::vector<int> ranks;
    for (std::size_t rank = first; rank < texts.size(); ++rank) {
      if (texts[rank] == text) ranks.push_back(static_cast<int>(rank));
    }
    const bool all = texts.size() > 1 && ranks.size() == texts.size();
    result += (result.empty() ? "" : "; ") + (all ? "all ranks" : list_of(ranks)) + ": " + text;
  }
  return result;
}

}  // namespace penstock::comm
