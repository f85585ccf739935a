#include "tests/engine/checkpoint_content.h"

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "tensor/context.h"

namespace penstock::testing {

CheckpointContent content_of(const std::filesystem::path& folder, const std::string& tag) {
  CheckpointContent content;
  comm::run_local(1, {}, [&](comm::World& world) {
    const auto reader = tag.empty() ? checkpoint::Reader::open(world, folder)
                                    : checkpoint::Reader::open(world, folder, tag);
    content.engine_json = nlohmann::json::parse(reader.engine_json()).dump();
    const tensor::Context context(tensor::make_cpu_allocator());
    for (const auto& [name, info] : reader.tensors()) {
      const tensor::Tensor value = tensor::Tensor::empty(context, info.shape, info.dtype);
      reader.read(name, value);
      content.tensors[name].assign(value.raw(), value.raw() + value.nbytes());
    }
  });
  return content;
}

void rewrite_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::string& dropped, const std::string& engine_json) {
  comm::run_local(1, {}, [&](comm::World& world) {
    const auto reader = checkpoint::Reader::open(world, from);
    const tensor::Context context(tensor::make_cpu_allocator());
    checkpoint::FilePlan plan{checkpoint::model_states_file(0, 0), {}};
    for (const auto& [name, info] : reader.tensors()) {
      if (name == dropped) continue;
      const tensor::Tensor value = tensor::Tensor::empty(context, info.shape, info.dtype);
      reader.read(name, value);
      plan.pieces.push_back(checkpoint::Piece::whole(name, value));
    }
    checkpoint::save(
        world, {.directory = to, .tag = reader.tag(), .files = {plan}, .engine_json = engine_json});
  });
}

}  // namespace penstock::testing
