#include "engine/micro_batch_sharing.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/transfer.h"

namespace penstock::engine {

namespace {

using model::MicroBatch;
using tensor::Tensor;

// What micro batches are like, as a row of numbers, so that memory for them can be made.
class Description {
 public:
  static std::vector<std::int64_t> write(std::span<const MicroBatch> batches) {
    std::vector<std::int64_t> numbers = {std::ssize(batches)};
    for (const MicroBatch& batch : batches) {
      numbers.push_back(batch.rows());
      numbers.insert(numbers.end(), batch.ids.begin(), batch.ids.end());
      write(numbers, batch.inputs);
      write(numbers, batch.labels);
      numbers.push_back(std::ssize(batch.named));
      for (const auto& [name, tensor] : batch.named) {
        numbers.push_back(std::ssize(name));
        numbers.insert(numbers.end(), name.begin(), name.end());
        write(numbers, std::span(&tensor, 1));
      }
    }
    return numbers;
  }

  explicit Description(std::span<const std::int64_t> numbers) : rest_(numbers) {}

  // Micro batches whose tensors have memory, but no values yet.
  std::vector<MicroBatch> read(const tensor::Context& context) {
    std::vector<MicroBatch> batches(static_cast<std::size_t>(take()));
    for (MicroBatch& batch : batches) {
      const auto ids = take(static_cast<std::size_t>(take()));
      batch.ids.assign(ids.begin(), ids.end());
      batch.inputs = read_tensors(context);
      batch.labels = read_tensors(context);
      for (std::int64_t left = take(); left > 0; --left) {
        const auto name = take(static_cast<std::size_t>(take()));
        batch.named[std::string(name.begin(), name.end())] = read_tensors(context).front();
      }
    }
    return batches;
  }

 private:
  static void write(std::vector<std::int64_t>& numbers, std::span<const Tensor> tensors) {
    numbers.push_back(std::ssize(tensors));
    for (const Tensor& tensor : tensors) {
      numbers.push_back(static_cast<std::int64_t>(tensor.dtype()));
      numbers.push_back(tensor.shape().rank());
      const auto dims = tensor.shape().dims();
      numbers.insert(numbers.end(), dims.begin(), dims.end());
    }
  }

  std::vector<Tensor> read_tensors(const tensor::Context& context) {
    std::vector<Tensor> tensors(static_cast<std::size_t>(take()));
    for (Tensor& tensor : tensors) {
      const auto dtype = static_cast<tensor::DType>(take());
      const tensor::Shape shape(take(static_cast<std::size_t>(take())));
      tensor = Tensor::empty(context, shape, dtype);
    }
    return tensors;
  }

  std::int64_t take() { return take(1).front(); }
  std::span<const std::int64_t> take(std::size_t count) {
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::span<const std::int64_t> rest_;
};

// From rank 0, whatever its length.
template <class T>
void broadcast(const tensor::Context& context, comm::Communicator& group, std::vector<T>& values) {
  std::int64_t count = std::ssize(values);
  const Tensor size = Tensor::from<std::int64_t>(context, {1}, std::span(&count, 1));
  group.broadcast(size, 0).wait();
  count = size.span<std::int64_t>().front();
  values.resize(static_cast<std::size_t>(count));
  const Tensor all = Tensor::from<T>(context, {count}, values);
  group.broadcast(all, 0).wait();
  std::ranges::copy(all.template span<T>(), values.begin());
}

}  // namespace

void check_sequences(const RankState& state) {
  const model::ModelAxis& axis = state.context.model;
  if (axis.size == 1 || !axis.sequence_parallel || !state.owns_first_stage()) return;
  for (const MicroBatch& loaded : state.batch.loaded) {
    const Tensor& input = loaded.inputs.front();
    if (input.shape().rank() >= 2 && input.dim(1) % axis.size == 0) continue;
    throw tensor::InvalidArgument(
        "[sequence_parallel] expected inputs [rows, tokens] with a number of tokens (dimension 1) "
        "that the " +
        std::to_string(axis.size) + " ranks of tensor_parallel.size divide, got " +
        input.to_string() + "; give sequences of another length or set sequence_parallel to false");
  }
}

void share_micro_batches(RankState& state) {
  comm::Communicator& group = state.comms.model();
  if (group.size() == 1) return;
  Batch& batch = state.batch;
  std::vector<std::int64_t> numbers;
  if (group.rank() == 0) numbers = Description::write(batch.loaded);
  broadcast(state.host, group, numbers);
  broadcast(state.host, group, batch.weights);
  if (group.rank() != 0) batch.loaded = Description(numbers).read(state.host);
  std::vector<comm::Work> works;
  for (const MicroBatch& loaded : batch.loaded) {
    for (const auto* tensors : {&loaded.inputs, &loaded.labels}) {
      for (const Tensor& tensor : *tensors) works.push_back(group.broadcast(tensor, 0));
    }
    for (const auto& [name, tensor] : loaded.named) works.push_back(group.broadcast(tensor, 0));
  }
  for (comm::Work& work : works) work.wait();
}

void place_named_inputs(RankState& state) {
  for (MicroBatch& loaded : state.batch.loaded) {
    for (auto& [name, tensor] : loaded.named) tensor = tensor::to_device(state.context, tensor);
  }
}

}  // namespace penstock::engine
