// Topology and grid against DeepSpeed's own results, and the errors.
#include "comm/topology.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "comm/grid.h"
#include "tensor/error.h"

namespace penstock::comm {
namespace {

using nlohmann::json;
using Lists = std::vector<std::vector<int>>;

// The rows of one type.
std::vector<json> golden(const std::string& type) {
  std::ifstream file(PENSTOCK_GOLDEN_DIR "/deepspeed_topology.jsonl");
  std::vector<json> rows;
  for (std::string line; std::getline(file, line);) {
    json row = json::parse(line);
    if (row.at("type") == type) rows.push_back(std::move(row));
  }
  EXPECT_FALSE(rows.empty()) << type;
  return rows;
}

ProcessTopology topology_of(const json& row) {
  return {row.at("axes").get<std::vector<std::string>>(), row.at("dims").get<std::vector<int>>()};
}

// "pipe=0,data=1"
std::vector<AxisIndex> parse_filter(const std::string& text) {
  std::vector<AxisIndex> filter;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    filter.push_back({part.substr(0, equals), std::stoi(part.substr(equals + 1))});
  }
  return filter;
}

TEST(ProcessTopology, EqualsDeepSpeed) {
  for (const json& row : golden("topology")) {
    const ProcessTopology topology = topology_of(row);
    SCOPED_TRACE(topology.to_string());
    EXPECT_EQ(topology.world_size(), row.at("world_size").get<int>());
    for (int rank = 0; rank < topology.world_size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const auto coord = row.at("coords").at(at).get<std::vector<int>>();
      EXPECT_EQ(topology.coord_of(rank), coord);
      std::vector<AxisIndex> indices;
      for (std::size_t axis = 0; axis < coord.size(); ++axis) {
        indices.insert(indices.begin(), {topology.axes()[axis], coord[axis]});
        EXPECT_EQ(topology.index_of(rank, topology.axes()[axis]), coord[axis]);
      }
      EXPECT_EQ(topology.rank_at(indices), rank);
      EXPECT_EQ(topology.rank_repr(rank), row.at("rank_repr").at(at).get<std::string>());
      EXPECT_EQ(topology.rank_repr(rank, {}), row.at("rank_repr_full").at(at).get<std::string>());
    }
    for (std::size_t axis = 0; axis < topology.axes().size(); ++axis) {
      const std::string& name = topology.axes()[axis];
      EXPECT_EQ(topology.dim(name), topology.dims()[axis]);
      EXPECT_EQ(topology.axis_comm_lists(name), row.at("axis_comm_lists").at(name).get<Lists>());
      Lists lists;
      for (int i = 0; i < topology.dim(name); ++i) lists.push_back(topology.axis_list(name, i));
      EXPECT_EQ(lists, row.at("axis_list").at(name).get<Lists>());
    }
  }
}

TEST(ProcessTopology, FiltersLikeDeepSpeed) {
  for (const json& row : golden("filter_match")) {
    const ProcessTopology topology = topology_of(row);
    ASSERT_FALSE(row.at("matches").empty());
    for (const auto& [filter, ranks] : row.at("matches").items()) {
      EXPECT_EQ(topology.filter_match(parse_filter(filter)), ranks.get<std::vector<int>>())
          << topology.to_string() << " at " << filter;
    }
  }
}

TEST(ProcessTopology, HasFactoriesLikeDeepSpeed) {
  const auto expect_equal = [](const ProcessTopology& topology, const json& row) {
    EXPECT_EQ(topology.axes(), row.at("axes").get<std::vector<std::string>>());
    EXPECT_EQ(topology.dims(), row.at("dims").get<std::vector<int>>());
  };
  for (const json& row : golden("pipe_data_topology")) {
    expect_equal(pipe_data_topology(row.at("num_pp"), row.at("num_dp")), row);
  }
  for (const json& row : golden("pipe_model_data_topology")) {
    expect_equal(pipe_data_model_topology(row.at("num_pp"), row.at("num_dp"), row.at("num_mp")),
                 row);
  }
}

TEST(ProcessTopology, DealsPrimeFactorsLikeDeepSpeed) {
  for (const json& row : golden("default_grid")) {
    const int size = row.at("world_size");
    EXPECT_EQ(prime_factors(size), row.at("prime_factors").get<std::vector<int>>());
    const std::vector<int> dims{row.at("num_pp"), row.at("num_dp")};
    EXPECT_EQ(default_topology(size).dims(), dims) << size;
  }
  EXPECT_EQ(default_topology(1).dims(), (std::vector<int>{1, 1}));
  EXPECT_EQ(prime_factors(1), std::vector<int>{});
  EXPECT_EQ(prime_factors(2147483647), std::vector<int>{2147483647});
  EXPECT_THROW(prime_factors(0), tensor::InvalidArgument);
}

TEST(ProcessTopology, NamesRanksWithAnySeparators) {
  const ProcessTopology topology({"a", "b"}, {2, 12});
  EXPECT_EQ(topology.rank_repr(12, {"pipe"}, "+", "::"), "a+01::b+00");
  EXPECT_EQ(topology.rank_repr(11, {"a"}), "b_11");
  EXPECT_EQ(topology.rank_repr(11, {"a", "b"}), "");
  EXPECT_EQ(topology.to_string(), "a × b = 2 × 12");
}

template <class Fn>
void expect_error(Fn fn, const std::vector<std::string>& parts) {
  try {
    fn();
    ADD_FAILURE() << "no error with " << parts.front();
  } catch (const tensor::InvalidArgument& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what() << " lacks " << part;
    }
  }
}

TEST(ProcessTopology, ErrorsNameAxesAndSizes) {
  const ProcessTopology t = pipe_data_topology(2, 4);
  const std::string name = "pipe × data = 2 × 4";
  EXPECT_EQ(t.dim("model"), 0);
  EXPECT_TRUE(t.axis_comm_lists("model").empty());
  EXPECT_TRUE(t.axis_list("pipe", 2).empty());
  expect_error([&] { t.rank_at({{"pipe", 0}}); }, {name, "\"data\" is missing"});
  expect_error([&] { t.rank_at({{"pipe", 0}, {"data", 4}}); }, {name, "from 0 to 3, got 4"});
  expect_error([&] { t.rank_at({{"pipe", -1}, {"data", 0}}); }, {name, "from 0 to 1, got -1"});
  expect_error([&] { t.rank_at({{"stage", 0}}); }, {name, "no axis \"stage\""});
  expect_error([&] { t.coord_of(8); }, {name, "from 0 to 7, got 8"});
  expect_error([&] { t.filter_match({{"model", 0}}); }, {name, "no axis \"model\""});
  expect_error([] { pipe_data_topology(0, 3); }, {"pipe × data = 0 × 3", "1 or more, got 0"});
  expect_error([] { ProcessTopology({"a", "a"}, {1, 2}); }, {"a × a = 1 × 2", "different names"});
  expect_error([] { ProcessTopology({"a"}, {1, 2}); }, {"1 axes and 2 sizes"});
  expect_error([] { ProcessTopology({"a", "b"}, {1 << 20, 1 << 20}); }, {"more ranks"});
}

TEST(Grid, EqualsDeepSpeed) {
  for (const json& row : golden("grid")) {
    const Grid grid(topology_of(row));
    SCOPED_TRACE(grid.topology().to_string());
    EXPECT_EQ(grid.pipe_size(), row.at("pipe_parallel_size").get<int>());
    EXPECT_EQ(grid.data_size(), row.at("data_parallel_size").get<int>());
    EXPECT_EQ(grid.model_size(), row.at("model_parallel_size").get<int>());
    EXPECT_EQ(grid.p2p_groups(), (row.at("p2p_groups").get<std::vector<std::pair<int, int>>>()));
    EXPECT_EQ(grid.group_order(), row.at("new_group_order").get<Lists>());
    ASSERT_EQ(row.at("ranks").size(), static_cast<std::size_t>(grid.size()));
    for (const json& want : row.at("ranks")) {
      const int rank = want.at("rank");
      const GridPosition at{want.at("stage_id"), want.at("data_parallel_id"),
                            want.at("slice_parallel_rank")};
      EXPECT_EQ(grid.position(rank), at);
      EXPECT_EQ(grid.rank_at(at), rank);
      EXPECT_EQ(grid.is_first_stage(rank), want.at("is_first_stage").get<bool>());
      EXPECT_EQ(grid.is_last_stage(rank), want.at("is_last_stage").get<bool>());
      const auto ranks = [&](const char* key) { return want.at(key).get<std::vector<int>>(); };
      EXPECT_EQ(grid.model_parallel_group(rank), ranks("ds_model_group"));
      EXPECT_EQ(grid.data_group(rank), ranks("dp_group"));
      EXPECT_EQ(grid.pipe_group(rank), ranks("pp_group"));
      EXPECT_EQ(grid.model_group(rank), ranks("slice_group"));
      std::vector<int> stages;
      for (int pipe = 0; pipe < grid.pipe_size(); ++pipe) {
        stages.push_back(grid.stage_to_global(rank, pipe));
      }
      EXPECT_EQ(stages, ranks("stage_to_global"));
    }
  }
}

TEST(Grid, TiesLikeDeepSpeed) {
  for (const json& row : golden("tied_groups")) {
    const Grid grid(topology_of(row));
    std::vector<std::string> keys;
    for (const json& key : row.at("layer_keys")) {
      keys.push_back(key.is_null() ? "" : key.get<std::string>());
    }
    const auto groups = grid.tied_groups(keys, row.at("parts").get<std::vector<int>>());
    Lists order;
    std::map<int, std::map<std::string, std::vector<int>>> by_rank;
    for (const TiedGroup& group : groups) {
      order.push_back(group.ranks);
      for (const int rank : group.ranks) by_rank[rank][group.key] = group.ranks;
    }
    EXPECT_EQ(order, row.at("new_group_order").get<Lists>());
    for (const json& want : row.at("ranks")) {
      using Tied = std::map<std::string, std::vector<int>>;
      EXPECT_EQ(by_rank[want.at("rank")], want.at("tied").get<Tied>());
    }
  }
}

TEST(Grid, TiesStagesWhereverTheyLive) {
  // Four stages in a V on a pipe of two: rank 0 owns stages 0 and 3.
  const Grid grid(2, 1);
  const std::vector<std::string> keys{"emb", "", "", "emb"};
  EXPECT_EQ(grid.tied_groups(keys, {0, 1, 2, 3, 4}, {0, 1, 1, 0}),
            (std::vector<TiedGroup>{{"emb", {0}}}));
  EXPECT_EQ(grid.tied_groups(keys, {0, 1, 2, 3, 4}, {0, 1, 0, 1}),
            (std::vector<TiedGroup>{{"emb", {0, 1}}}));
}

TEST(Grid, RefusesWhatItCannotUse) {
  expect_error([] { Grid(ProcessTopology({"pipe", "model"}, {2, 2})); }, {"pipe × model = 2 × 2"});
  expect_error([] { Grid(ProcessTopology({"pipe", "data", "x"}, {1, 2, 3})); }, {"= 1 × 2 × 3"});
  const Grid grid(pipe_data_topology(2, 2));
  expect_error([&] { grid.rank_at({0, 0, 1}); }, {"pipe × data = 2 × 2", "model index", "got 1"});
  expect_error([&] { grid.stage_to_global(0, 2); }, {"from 0 to 1, got 2"});
  expect_error([&] { grid.tied_groups({"a"}, {0, 1}); }, {"expected 3 ascending bounds"});
  expect_error([&] { grid.tied_groups({"a"}, {0, 1, 2}); }, {"to the 1 layers"});
}

// The world ranks of a communicator's members.
std::vector<std::int64_t> members(Communicator& group, const World& world) {
  const std::int64_t rank = world.rank();
  return group.all_gather_wait({&rank, 1});
}

std::vector<std::int64_t> wide(const std::vector<int>& ranks) {
  return {ranks.begin(), ranks.end()};
}

TEST(GridComms, HoldTheRanksOfTheirGroups) {
  const Grid grids[] = {Grid(2, 2, 2), Grid(pipe_data_topology(3, 2)), Grid(1, 1),
                        Grid(ProcessTopology({"model", "data", "pipe"}, {1, 2, 3}))};
  for (const Grid& grid : grids) {
    run_local(grid.size(), {.timeout_seconds = 60.0}, [&](World& world) {
      GridComms comms(world, grid);
      EXPECT_EQ(members(comms.pipe(), world), wide(grid.pipe_group(world.rank())));
      EXPECT_EQ(members(comms.data(), world), wide(grid.data_group(world.rank())));
      EXPECT_EQ(comms.pipe().rank(), grid.position(world.rank()).pipe);
      EXPECT_EQ(comms.data().rank(), grid.position(world.rank()).data);
      comms.close();
      world.close();
    });
  }
}

TEST(GridComms, TieTheOwnersOfAKey) {
  const Grid grid(3, 2);
  const auto groups = grid.tied_groups({"b", "a", "", "b", "a", ""}, {0, 2, 4, 6});
  run_local(grid.size(), {.timeout_seconds = 60.0}, [&](World& world) {
    GridComms grid_comms(world, grid);
    auto comms = grid_comms.make_tied(groups);
    std::size_t found = 0;
    for (const TiedGroup& group : groups) {
      if (std::count(group.ranks.begin(), group.ranks.end(), world.rank()) == 0) continue;
      ++found;
      ASSERT_TRUE(comms.contains(group.key));
      EXPECT_EQ(members(*comms.at(group.key), world), wide(group.ranks));
    }
    EXPECT_EQ(comms.size(), found);
    for (auto& [key, comm] : comms) comm->close();
    grid_comms.close();
    world.close();
  });
}

TEST(GridComms, NeedAWorldOfTheGridsSize) {
  expect_error([] { run_local(3, {}, [](World& world) { GridComms(world, Grid(2, 2)); }); },
               {"pipe × data × model = 2 × 2 × 1", "needs 4 ranks", "world has 3"});
}

}  // namespace
}  // namespace penstock::comm
