#include "comm/grid.h"

#include <algorithm>
#include <set>

#include "tensor/error.h"

namespace penstock::comm {

using tensor::InvalidArgument;

Grid::Grid(ProcessTopology topology)
    : topology_(std::move(topology)),
      pipe_(topology_.dim("pipe")),
      data_(topology_.dim("data")),
      model_(std::max(1, topology_.dim("model"))) {
  const std::size_t known = topology_.dim("model") > 0 ? 3 : 2;
  if (pipe_ == 0 || data_ == 0 || topology_.axes().size() != known) {
    throw InvalidArgument("[grid] expected the axes pipe and data, and perhaps model, got " +
                          topology_.to_string());
  }
}

GridPosition Grid::position(int rank) const {
  const std::vector<int> coord = topology_.coord_of(rank);
  GridPosition result;
  for (std::size_t axis = 0; axis < coord.size(); ++axis) {
    const std::string& name = topology_.axes()[axis];
    (name == "pipe" ? result.pipe : name == "data" ? result.data : result.model) = coord[axis];
  }
  return result;
}

int Grid::rank_at(const GridPosition& position) const {
  std::vector<AxisIndex> indices{{"pipe", position.pipe}, {"data", position.data}};
  if (topology_.dim("model") > 0) {
    indices.push_back({"model", position.model});
  } else if (position.model != 0) {
    throw InvalidArgument("[grid] " + topology_.to_string() + ": the only model index is 0, got " +
                          std::to_string(position.model));
  }
  return topology_.rank_at(indices);
}

int Grid::stage_to_global(int rank, int pipe) const {
  GridPosition at = position(rank);
  at.pipe = pipe;
  return rank_at(at);
}

// The ranks that share this rank's indices, except along the axes that are set.
std::vector<int> Grid::group_along(int rank, bool pipe, bool data, bool model) const {
  const GridPosition mine = position(rank);
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    const GridPosition at = position(other);
    if ((pipe || at.pipe == mine.pipe) && (data || at.data == mine.data) &&
        (model || at.model == mine.model)) {
      ranks.push_back(other);
    }
  }
  return ranks;
}

std::vector<int> Grid::pipe_group(int rank) const {
  return group_along(rank, true, false, false);
}

std::vector<int> Grid::data_group(int rank) const {
  return group_along(rank, false, true, false);
}

std::vector<int> Grid::model_group(int rank) const {
  return group_along(rank, false, false, true);
}

std::vector<int> Grid::model_parallel_group(int rank) const {
  return group_along(rank, true, false, true);
}

std::vector<std::pair<int, int>> Grid::p2p_groups() const {
  std::vector<std::pair<int, int>> pairs;
  for (int rank = 0; rank < size(); ++rank) {
    pairs.emplace_back(rank, stage_to_global(rank, (position(rank).pipe + 1) % pipe_));
  }
  return pairs;
}

std::vector<std::vector<int>> Grid::group_order() const {
  std::vector<std::vector<int>> order;
  for (int data = 0; data < data_; ++data) order.push_back(topology_.axis_list("data", data));
  const auto add_lists = [&](std::string_view axis) {
    for (std::vector<int>& list : topology_.axis_comm_lists(axis)) order.push_back(std::move(list));
  };
  add_lists("data");
  add_lists("pipe");
  add_lists("model");
  if (topology_.dim("model") == 0) {
    for (int rank = 0; rank < size(); ++rank) order.push_back({rank});
  }
  return order;
}

std::vector<TiedGroup> Grid::tied_groups(const std::vector<std::string>& layer_keys,
                                         const std::vector<int>& parts,
                                         const std::vector<int>& pipe_of_stage) const {
  const std::size_t stages =
      pipe_of_stage.empty() ? static_cast<std::size_t>(pipe_) : pipe_of_stage.size();
  if (parts.size() != stages + 1 || parts.front() != 0 ||
      parts.back() != static_cast<int>(layer_keys.size()) ||
      !std::is_sorted(parts.begin(), parts.end())) {
    throw InvalidArgument("[grid] expected " + std::to_string(stages + 1) +
                          " ascending bounds from 0 to the " + std::to_string(layer_keys.size()) +
                          " layers for " + std::to_string(stages) + " stages, got " +
                          std::to_string(parts.size()));
  }
  std::map<std::string, std::set<int>> owners;  // places in the pipe, by key
  for (std::size_t stage = 0; stage < stages; ++stage) {
    for (int layer = parts[stage]; layer < parts[stage + 1]; ++layer) {
      const std::string& key = layer_keys[static_cast<std::size_t>(layer)];
      const int place = pipe_of_stage.empty() ? static_cast<int>(stage) : pipe_of_stage[stage];
      if (!key.empty()) owners[key].insert(place);
    }
  }
  std::vector<TiedGroup> groups;
  if (pipe_ == 1) return groups;
  for (const auto& [key, places] : owners) {
    for (int data = 0; data < data_; ++data) {
      for (int model = 0; model < model_; ++model) {
        TiedGroup& group = groups.emplace_back(TiedGroup{key, {}});
        for (const int place : places) group.ranks.push_back(rank_at({place, data, model}));
      }
    }
  }
  return groups;
}

GridComms::GridComms(World& world, const Grid& grid)
    : GridComms(world, grid, tensor::make_cpu_allocator(), Transport::kStaged) {}

GridComms::GridComms(World& world, const Grid& grid,
                     const std::shared_ptr<tensor::Allocator>& memory, Transport transport,
                     Links pipe)
    : world_(world), memory_(memory), transport_(transport) {
  if (world.size() != grid.size()) {
    throw InvalidArgument("[grid] " + grid.topology().to_string() + " needs " +
                          std::to_string(grid.size()) + " ranks, but the world has " +
                          std::to_string(world.size()));
  }
  const int rank = world.rank();
  const auto make = [&](const std::vector<int>& group) {
    return world.all().split(group.front(), rank);  // groups of one kind differ in the first rank
  };
  pipe_ = make(grid.pipe_group(rank));
  data_ = make(grid.data_group(rank));
  model_ = make(grid.model_group(rank));
  pipe_ = equipped(std::move(pipe_), pipe);
  data_ = equipped(std::move(data_), Links::kNone);
  model_ = equipped(std::move(model_), Links::kNone);
}

std::unique_ptr<Communicator> GridComms::equipped(std::unique_ptr<Communicator> group,
                                                  Links links) const {
  return make_device_communicator(world_, std::move(group), transport_, memory_, links);
}

std::map<std::string, std::unique_ptr<Communicator>> GridComms::make_tied(
    const std::vector<TiedGroup>& groups) const {
  std::map<std::string, int> colors;  // of every key, by this rank's group; -1 where it has none
  for (const TiedGroup& group : groups) {
    const auto found = colors.try_emplace(group.key, -1).first;
    const bool mine =
        std::find(group.ranks.begin(), group.ranks.end(), world_.rank()) != group.ranks.end();
    if (mine) found->second = group.ranks.front();
  }
  std::map<std::string, std::unique_ptr<Communicator>> comms;
  for (const auto& [key, color] : colors) {
    auto comm = world_.all().split(color, world_.rank());
    if (comm != nullptr) comms.emplace(key, equipped(std::move(comm), Links::kNone));
  }
  return comms;
}

void GridComms::close() {
  model_->close();
  data_->close();
  pipe_->close();
}

}  // namespace penstock::comm
