// penstock-bench checkpoint: how fast a save is, beside plain writing of the same bytes.
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "comm/world.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

namespace fs = std::filesystem;
using tensor::Tensor;

constexpr std::int64_t kMiB = 1024 * 1024;
// A rank's state: as many layers, a file each.
constexpr int kLayers = 8;

std::vector<Tensor> make_layers(std::int64_t layer_bytes) {
  const auto allocator = tensor::make_cpu_allocator();
  std::vector<Tensor> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(Tensor::empty(allocator, {layer_bytes}, tensor::DType::kU8));
    std::memset(layers.back().raw(), 1 + i, layers.back().nbytes());
  }
  return layers;
}

void save(comm::World& world, const std::vector<Tensor>& layers, const fs::path& folder) {
  checkpoint::SaveRequest request;
  request.directory = folder;
  request.tag = "bench";
  request.engine_json = "{}";
  for (int i = 0; i < kLayers; ++i) {
    const int layer = world.rank() * kLayers + i;
    request.files.push_back(
        {checkpoint::model_states_file(layer, 0),
         {checkpoint::Piece::whole(std::to_string(layer), layers[static_cast<std::size_t>(i)])}});
  }
  checkpoint::save(world, request);
}

// One file per rank, synced once, by the system's calls alone.
void write_plainly(const std::vector<Tensor>& layers, const fs::path& path) {
  constexpr std::int64_t kBlock = 8 * kMiB;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  bool fine = file >= 0;
  for (const Tensor& layer : layers) {
    for (std::int64_t done = 0; fine && done < layer.numel(); done += kBlock) {
      const std::int64_t bytes = std::min(kBlock, layer.numel() - done);
      fine = write(file, layer.raw() + done, static_cast<std::size_t>(bytes)) == bytes;
    }
  }
  fine = fine && fsync(file) == 0;
  if (file >= 0) close(file);
  if (!fine) throw tensor::Error("[bench] " + path.string() + " cannot be written");
}

// From when all ranks begin until all are done.
template <class Fn>
double seconds(comm::World& world, Fn fn) {
  using Clock = std::chrono::steady_clock;
  world.all().barrier().wait();
  const Clock::time_point begin = Clock::now();
  fn();
  world.all().barrier().wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

void bench_checkpoint(const fs::path& parent, std::int64_t mebibytes) {
  constexpr int kTurns = 4;
  constexpr int kRanks = 2;
  const fs::path folder = parent / "penstock-bench-checkpoint";
  const std::int64_t layer_bytes = mebibytes * kMiB / kLayers;
  Table table(
      {"2 ranks, " + std::to_string(mebibytes) + " MiB each", "save MB/s", "plain MB/s", "ratio"});
  std::vector<double> ratios;
  comm::run_local(kRanks, {}, [&](comm::World& world) {
    const std::vector<Tensor> layers = make_layers(layer_bytes);
    for (int turn = 0; turn <= kTurns; ++turn) {  // the first does not count
      double ours = 0.0, plain = 0.0;
      for (const bool saves : {turn % 2 == 0, turn % 2 != 0}) {  // in changing order
        if (world.rank() == 0) fs::create_directories(folder);
        (saves ? ours : plain) = seconds(world, [&] {
          saves ? save(world, layers, folder)
                : write_plainly(layers, folder / ("plain" + std::to_string(world.rank())));
        });
        if (world.rank() == 0) fs::remove_all(folder);
      }
      if (world.rank() != 0 || turn == 0) continue;
      const double megabytes = kRanks * kLayers * static_cast<double>(layer_bytes) * 1e-6;
      ratios.push_back(plain / ours);
      table.add({"turn " + std::to_string(turn), formatted("%.0f", megabytes / ours),
                 formatted("%.0f", megabytes / plain), formatted("%.2f", ratios.back())});
    }
  });
  table.add({"median", "", "", formatted("%.2f", median(ratios))});
  table.print();
}

}  // namespace penstock::tools
