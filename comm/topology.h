// ProcessTopology: ranks laid out on named axes, and the lists of ranks that share coordinates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::comm {

// "the index along this axis"
struct AxisIndex {
  std::string axis;
  int index = 0;
};

// Row-major: the last axis varies fastest, so its neighbours are adjacent ranks. Errors are
// InvalidArgument and name the axes and their sizes.
class ProcessTopology {
 public:
  // Axis names differ and are not empty; sizes are 1 or more.
  ProcessTopology(std::vector<std::string> axes, std::vector<int> dims);

  const std::vector<std::string>& axes() const { return axes_; }
  const std::vector<int>& dims() const { return dims_; }
  int world_size() const { return world_size_; }
  // The size of an axis; 0 if there is none of this name.
  int dim(std::string_view axis) const;

  // The rank at these indices, one for each axis, in any order.
  int rank_at(const std::vector<AxisIndex>& indices) const;
  // The indices of a rank, in the order of axes().
  std::vector<int> coord_of(int rank) const;
  int index_of(int rank, std::string_view axis) const;

  // Ranks in ascending order whose index along `axis` is `index`.
  std::vector<int> axis_list(std::string_view axis, int index) const;
  // The groups that communicate along an axis: each list holds the ranks that differ in this axis
  // alone, lists ordered by the other indices. Empty if there is no such axis.
  std::vector<std::vector<int>> axis_comm_lists(std::string_view axis) const;
  // Ranks in ascending order that have all these indices.
  std::vector<int> filter_match(const std::vector<AxisIndex>& indices) const;

  // A name for files: "pipe_00-model_01", without the axes to omit.
  std::string rank_repr(int rank, const std::vector<std::string>& omit_axes = {"data", "pipe"},
                        std::string_view inner_separator = "_",
                        std::string_view outer_separator = "-") const;

  // "pipe × data = 2 × 4"
  std::string to_string() const;

 private:
  std::size_t axis_position(std::string_view axis) const;

  std::vector<std::string> axes_;
  std::vector<int> dims_;
  std::vector<int> strides_;
  int world_size_ = 1;
};

// Axes pipe, data: the replicas of a stage are adjacent ranks.
ProcessTopology pipe_data_topology(int pipe, int data);
// Axes pipe, data, model: the tensor-parallel ranks of a stage are adjacent ranks.
ProcessTopology pipe_data_model_topology(int pipe, int data, int model);
// When only the number of ranks is given: its prime factors, smallest first, go to pipe and data by
// turns (12 = 2·2·3 gives pipe 6 × data 2).
ProcessTopology default_topology(int world_size);

// Ascending; empty for 1. Throws InvalidArgument for numbers below 1.
std::vector<int> prime_factors(int number);

}  // namespace penstock::comm
