#include "tests/checkpoint/support.h"

#include <cstdlib>
#include <mutex>

#include <unistd.h>

#include "tensor/half.h"

namespace penstock::checkpoint::testing {

namespace fs = std::filesystem;
using tensor::BF16;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kColumns = 6;

std::string layer_name(int layer, const char* what) {
  return std::to_string(layer) + "." + what;
}

std::vector<float> weight_values(int version, int layer, float shift) {
  std::vector<float> result;
  for (int i = 0; i < kRows * kColumns; ++i) {
    result.push_back(static_cast<float>(1000 * version + 100 * layer + i) + shift);
  }
  return result;
}

std::vector<BF16> bias_values(int version, int layer) {
  std::vector<BF16> result;
  for (int i = 0; i < kColumns; ++i) {
    result.push_back(tensor::to_bf16(static_cast<float>(16 * version + 4 * layer) / 8.0f +
                                     static_cast<float>(i)));
  }
  return result;
}

bool holds_version(const Reader& reader, int version) {
  const tensor::Context context = cpu_context();
  const Tensor weight = Tensor::empty(context, {kRows, kColumns}, tensor::DType::kF32);
  const Tensor bias = Tensor::empty(context, {kColumns}, tensor::DType::kBF16);
  bool same = reader.engine_json() == "{\"version\": " + std::to_string(version) + "}";
  for (int layer = 0; layer < kLayers; ++layer) {
    reader.read(layer_name(layer, "weight"), weight);
    same &= values<float>(weight) == weight_values(version, layer, 0.0f);
    reader.read(layer_name(layer, "weight.exp_avg"), weight);
    same &= values<float>(weight) == weight_values(version, layer, 0.5f);
    reader.read(layer_name(layer, "bias"), bias);
    same &= values<BF16>(bias) == bias_values(version, layer);
  }
  return same;
}

}  // namespace

void put_bytes(FileSystem& file_system, const fs::path& path, const std::string& bytes) {
  write_text(file_system, path, bytes);
}

std::string get_bytes(FileSystem& file_system, const fs::path& path) {
  return read_text(file_system, path);
}

void run_ranks(int ranks, const std::function<void(comm::World&)>& fn) {
  comm::run_local(ranks, {.timeout_seconds = 60.0}, [&fn](comm::World& world) {
    fn(world);
    world.close();
  });
}

SaveRequest request_of(comm::World& world, const fs::path& directory, const std::string& tag,
                       int version) {
  const tensor::Context context = cpu_context();
  SaveRequest request;
  request.directory = directory;
  request.tag = tag;
  request.engine_json = "{\"version\": " + std::to_string(version) + "}";
  for (int layer = world.rank(); layer < kLayers; layer += world.size()) {
    const Tensor weight = make(context, {kRows, kColumns}, weight_values(version, layer, 0.0f));
    const Tensor moment = make(context, {kRows, kColumns}, weight_values(version, layer, 0.5f));
    const Tensor bias = make(context, {kColumns}, bias_values(version, layer));
    request.files.push_back({model_states_file(layer, 0),
                             {Piece::whole(layer_name(layer, "weight"), weight),
                              Piece::whole(layer_name(layer, "bias"), bias)}});
    request.files.push_back(
        {optim_states_file(layer, 0), {Piece::whole(layer_name(layer, "weight.exp_avg"), moment)}});
  }
  return request;
}

int version_of(const Reader& reader) {
  EXPECT_EQ(reader.tensors().size(), 3u * kLayers);
  for (int version = 0; version < 10; ++version) {
    if (holds_version(reader, version)) return version;
  }
  ADD_FAILURE() << "a mixed checkpoint at " << reader.path();
  return -1;
}

void save_version(FileSystem& file_system, int ranks, const fs::path& directory,
                  const std::string& tag, int version) {
  run_ranks(ranks, [&](comm::World& world) {
    save(world, request_of(world, directory, tag, version), file_system);
  });
}

int load_version(FileSystem& file_system, int ranks, const fs::path& directory,
                 const std::optional<std::string>& tag) {
  std::mutex mutex;
  std::vector<int> found;
  run_ranks(ranks, [&](comm::World& world) {
    const int version = version_of(Reader::open(world, directory, tag, file_system));
    const std::lock_guard lock(mutex);
    found.push_back(version);
  });
  for (const int version : found) EXPECT_EQ(version, found.front());
  return found.front();
}

std::string load_error(FileSystem& file_system, int ranks, const fs::path& directory,
                       const std::optional<std::string>& tag) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](comm::World& world) {
    texts[static_cast<std::size_t>(world.rank())] =
        message<FileError>([&] { Reader::open(world, directory, tag, file_system); });
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  return texts.front();
}

}  // namespace penstock::checkpoint::testing
