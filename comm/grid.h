// Grid: the ranks of a run as pipe × data × model, the groups they form, and their communicators.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/device/devices.h"
#include "comm/topology.h"
#include "comm/world.h"

namespace penstock::comm {

// The place of one rank.
struct GridPosition {
  int pipe = 0;
  int data = 0;
  int model = 0;

  bool operator==(const GridPosition&) const = default;
};

// Ranks, in pipe order, that own uses of one tied layer, for one data and one model index.
struct TiedGroup {
  std::string key;
  std::vector<int> ranks;

  bool operator==(const TiedGroup&) const = default;
};

// Pure data: the same on every rank, and nothing is sent.
class Grid {
 public:
  // The topology has the axes pipe and data, and may have model, in any order; no others.
  explicit Grid(ProcessTopology topology);
  Grid(int pipe, int data, int model = 1) : Grid(pipe_data_model_topology(pipe, data, model)) {}

  const ProcessTopology& topology() const { return topology_; }
  int size() const { return topology_.world_size(); }
  int pipe_size() const { return pipe_; }
  int data_size() const { return data_; }
  int model_size() const { return model_; }

  GridPosition position(int rank) const;
  int rank_at(const GridPosition& position) const;
  bool is_first_stage(int rank) const { return position(rank).pipe == 0; }
  bool is_last_stage(int rank) const { return position(rank).pipe == pipe_ - 1; }
  // The rank at another place of the pipe that has this rank's data and model index.
  int stage_to_global(int rank, int pipe) const;

  // Each of these groups contains `rank`; ranks ascend.
  std::vector<int> pipe_group(int rank) const;            // one replica's pipe, one model index
  std::vector<int> data_group(int rank) const;            // the replicas
  std::vector<int> model_group(int rank) const;           // tensor-parallel peers
  std::vector<int> model_parallel_group(int rank) const;  // one whole replica: pipe × model
  // (rank, rank of the next place of its pipe), the last wrapping around to the first.
  std::vector<std::pair<int, int>> p2p_groups() const;

  // All groups in the order in which DeepSpeed creates them: model-parallel, data, pipe, model.
  std::vector<std::vector<int>> group_order() const;

  // The groups of tied layers: keys in sorted order, then data index, then model index.
  // layer_keys[i] is the tie key of global layer i or empty; stage s owns the layers
  // [parts[s], parts[s+1]); pipe_of_stage[s] says where in the pipe stage s lives (empty: stage s
  // at place s). With a pipe of one there is nothing to tie between ranks, and no group.
  std::vector<TiedGroup> tied_groups(const std::vector<std::string>& layer_keys,
                                     const std::vector<int>& parts,
                                     const std::vector<int>& pipe_of_stage = {}) const;

 private:
  std::vector<int> group_along(int rank, bool pipe, bool data, bool model) const;

  ProcessTopology topology_;
  int pipe_;
  int data_;
  int model_;
};

// The communicators of one rank of a grid. Making and closing them is collective over the world,
// and waits; members are in ascending world rank. Borrows the world.
class GridComms {
 public:
  // For tensors of the host. Throws InvalidArgument when the world's size is not the grid's.
  GridComms(World& world, const Grid& grid);
  // For tensors of the memory's device too, if it has one; see make_device_communicator(). Messages
  // travel along the pipe alone, between the places that `pipe` links.
  GridComms(World& world, const Grid& grid, const std::shared_ptr<tensor::Allocator>& memory,
            Transport transport, Links pipe = Links::kNeighbours);

  Communicator& pipe() { return *pipe_; }
  Communicator& data() { return *data_; }
  Communicator& model() { return *model_; }
  // One for each key of the groups that contain this rank; no messages travel in it. With the same
  // groups on every rank.
  std::map<std::string, std::unique_ptr<Communicator>> make_tied(
      const std::vector<TiedGroup>& groups) const;

  void close();

 private:
  std::unique_ptr<Communicator> equipped(std::unique_ptr<Communicator> group, Links links) const;

  World& world_;
  std::shared_ptr<tensor::Allocator> memory_;
  Transport transport_;
  std::unique_ptr<Communicator> pipe_;
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> model_;
};

}  // namespace penstock::comm
