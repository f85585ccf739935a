#include "comm/topology.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "tensor/error.h"

namespace penstock::comm {

using tensor::InvalidArgument;

ProcessTopology::ProcessTopology(std::vector<std::string> axes, std::vector<int> dims)
    : axes_(std::move(axes)), dims_(std::move(dims)), strides_(dims_.size()) {
  if (axes_.size() != dims_.size() || axes_.empty()) {
    throw InvalidArgument("[topology] expected a size for each axis, got " +
                          std::to_string(axes_.size()) + " axes and " +
                          std::to_string(dims_.size()) + " sizes");
  }
  std::int64_t size = 1;
  for (std::size_t i = axes_.size(); i-- > 0;) {
    if (axes_[i].empty() || std::count(axes_.begin(), axes_.end(), axes_[i]) != 1) {
      throw InvalidArgument("[topology] " + to_string() + ": axes need different names, got \"" +
                            axes_[i] + "\"");
    }
    if (dims_[i] < 1) {
      throw InvalidArgument("[topology] " + to_string() + ": the size of axis \"" + axes_[i] +
                            "\" must be 1 or more, got " + std::to_string(dims_[i]));
    }
    strides_[i] = static_cast<int>(size);
    size *= dims_[i];
    if (size > std::numeric_limits<int>::max()) {
      throw InvalidArgument("[topology] " + to_string() + ": more ranks than an int can count");
    }
  }
  world_size_ = static_cast<int>(size);
}

int ProcessTopology::dim(std::string_view axis) const {
  const auto found = std::find(axes_.begin(), axes_.end(), axis);
  return found == axes_.end() ? 0 : dims_[static_cast<std::size_t>(found - axes_.begin())];
}

int ProcessTopology::rank_at(const std::vector<AxisIndex>& indices) const {
  std::vector<int> given(axes_.size(), -1);
  for (const AxisIndex& at : indices) {
    const std::size_t axis = axis_position(at.axis);
    if (at.index < 0 || at.index >= dims_[axis]) {
      throw InvalidArgument("[topology] " + to_string() + ": expected an index along \"" + at.axis +
                            "\" from 0 to " + std::to_string(dims_[axis] - 1) + ", got " +
                            std::to_string(at.index));
    }
    given[axis] = at.index;
  }
  int rank = 0;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (given[axis] < 0) {
      throw InvalidArgument("[topology] " + to_string() +
                            ": a rank needs an index along every axis; \"" + axes_[axis] +
                            "\" is missing (filter_match finds all ranks with some indices)");
    }
    rank += given[axis] * strides_[axis];
  }
  return rank;
}

std::vector<int> ProcessTopology::coord_of(int rank) const {
  if (rank < 0 || rank >= world_size_) {
    throw InvalidArgument("[topology] " + to_string() + ": expected a rank from 0 to " +
                          std::to_string(world_size_ - 1) + ", got " + std::to_string(rank));
  }
  std::vector<int> coord;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    coord.push_back(rank / strides_[axis] % dims_[axis]);
  }
  return coord;
}

int ProcessTopology::index_of(int rank, std::string_view axis) const {
  return coord_of(rank)[axis_position(axis)];
}

std::vector<int> ProcessTopology::axis_list(std::string_view axis, int index) const {
  return filter_match({{std::string(axis), index}});
}

std::vector<std::vector<int>> ProcessTopology::axis_comm_lists(std::string_view axis) const {
  std::vector<std::vector<int>> lists;
  if (dim(axis) == 0) return lists;
  const std::size_t position = axis_position(axis);
  for (int first : axis_list(axis, 0)) {
    std::vector<int>& list = lists.emplace_back();
    for (int i = 0; i < dims_[position]; ++i) list.push_back(first + i * strides_[position]);
  }
  return lists;
}

std::vector<int> ProcessTopology::filter_match(const std::vector<AxisIndex>& indices) const {
  std::vector<std::pair<std::size_t, int>> wanted;
  for (const AxisIndex& at : indices) wanted.emplace_back(axis_position(at.axis), at.index);
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    const bool matches = std::all_of(wanted.begin(), wanted.end(), [&](const auto& at) {
      return rank / strides_[at.first] % dims_[at.first] == at.second;
    });
    if (matches) ranks.push_back(rank);
  }
  return ranks;
}

std::string ProcessTopology::rank_repr(int rank, const std::vector<std::string>& omit_axes,
                                       std::string_view inner_separator,
                                       std::string_view outer_separator) const {
  const std::vector<int> coord = coord_of(rank);
  std::string text;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (std::find(omit_axes.begin(), omit_axes.end(), axes_[axis]) != omit_axes.end()) continue;
    if (!text.empty()) text += outer_separator;
    const std::string index = std::to_string(coord[axis]);
    text.append(axes_[axis]).append(inner_separator).append(index.size() < 2 ? "0" : "");
    text += index;
  }
  return text;
}

std::string ProcessTopology::to_string() const {
  std::string names;
  std::string sizes;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    names.append(axis == 0 ? "" : " × ").append(axes_[axis]);
    sizes.append(axis == 0 ? "" : " × ").append(std::to_string(dims_[axis]));
  }
  return names + " = " + sizes;
}

std::size_t ProcessTopology::axis_position(std::string_view axis) const {
  const auto found = std::find(axes_.begin(), axes_.end(), axis);
  if (found == axes_.end()) {
    throw InvalidArgument("[topology] " + to_string() + " has no axis \"" + std::string(axis) +
                          "\"");
  }
  return static_cast<std::size_t>(found - axes_.begin());
}

ProcessTopology pipe_data_topology(int pipe, int data) {
  return {{"pipe", "data"}, {pipe, data}};
}

ProcessTopology pipe_data_model_topology(int pipe, int data, int model) {
  return {{"pipe", "data", "model"}, {pipe, data, model}};
}

ProcessTopology default_topology(int world_size) {
  int pipe = 1;
  int data = 1;
  bool to_pipe = true;
  for (const int factor : prime_factors(world_size)) {
    (to_pipe ? pipe : data) *= factor;
    to_pipe = !to_pipe;
  }
  return pipe_data_topology(pipe, data);
}

std::vector<int> prime_factors(int number) {
  if (number < 1) {
    throw InvalidArgument("[topology] prime factors expected a number of 1 or more, got " +
                          std::to_string(number));
  }
  std::vector<int> factors;
  for (int factor = 2; factor <= number / factor; ++factor) {
    for (; number % factor == 0; number /= factor) factors.push_back(factor);
  }
  if (number > 1) factors.push_back(number);
  return factors;
}

}  // namespace penstock::comm
