#include "engine/load_plan.h"

#include <algorithm>
#include <utility>

#include "checkpoint/error.h"

namespace penstock::engine {

namespace {

constexpr char kEndOfName = '\0';

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + kEndOfName;
  return text;
}

// The names of all ranks.
std::set<std::string> united(comm::World& world, const std::set<std::string>& mine) {
  std::set<std::string> names;
  for (const std::string& text : world.all().all_gather_text(joined(mine))) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find(kEndOfName, begin);
      names.insert(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

std::string layer_of(const StateTensor& tensor) {
  return "layer " + std::to_string(tensor.layer) + ": ";
}

// "x", or what stands for it.
std::string shown(const LoadPlan::Item& item) {
  const std::string name = item.tensor.full_name();
  return "\"" + item.stored + "\"" + (item.stored == name ? "" : " for \"" + name + "\"");
}

void check_tensor(const LoadPlan::Item& item, const checkpoint::TensorInfo& stored,
                  const TensorSource& source) {
  const tensor::Shape& shape = item.tensor.parameter->shape;
  const tensor::DType dtype = item.tensor.value.dtype();
  const bool readable =
      stored.dtype == dtype || (source.casts && is_floating(stored.dtype) && is_floating(dtype));
  if (stored.shape == shape && readable) return;
  throw checkpoint::FileError(
      layer_of(item.tensor) + shown(item) + " is " + std::string(tensor::name_of(stored.dtype)) +
      " " + stored.shape.to_string() + " in " + source.what + ", the module has " +
      std::string(tensor::name_of(dtype)) + " " + shape.to_string());
}

bool is_wide(tensor::DType dtype) {
  return tensor::compute_dtype(dtype) == dtype;
}

// Where the elements come from. An f32 weight is the master, where the source has one beside a
// weight of 16 bits; beside a wide weight there is none, and a master begins as the weight.
std::string name_in(const TensorSource& source, const StateTensor& tensor,
                    const std::string& weight) {
  const std::string master = weight + "/" + ParameterState::kMaster;
  if (tensor.state == ParameterState::kMaster) {
    const checkpoint::TensorInfo* stored = source.find(weight);
    return stored != nullptr && is_wide(stored->dtype) ? weight : master;
  }
  const bool takes_master = tensor.state.empty() && is_wide(tensor.value.dtype());
  if (takes_master && source.find(master) != nullptr) return master;
  return tensor.stored_name(weight);
}

}  // namespace

LoadPlan make_load_plan(std::vector<StateTensor> tensors, const TensorSource& source,
                        const StoredNames& names) {
  LoadPlan plan;
  for (StateTensor& tensor : tensors) {
    const std::string weight = names ? names(tensor.name) : tensor.name;
    if (weight.empty()) continue;
    if (tensor.state.empty()) plan.wanted.insert(weight);
    LoadPlan::Item item{std::move(tensor), ""};
    item.stored = name_in(source, item.tensor, weight);
    if (const checkpoint::TensorInfo* stored = source.find(item.stored)) {
      check_tensor(item, *stored, source);
      plan.found.push_back(std::move(item));
    } else {
      plan.missing.push_back(std::move(item));
    }
  }
  return plan;
}

LoadModuleResult misfits(comm::World& world, const LoadPlan& plan, const TensorSource& source) {
  std::set<std::string> missing;
  for (const LoadPlan::Item& item : plan.missing) missing.insert(item.tensor.full_name());
  missing = united(world, missing);
  const std::set<std::string> wanted = united(world, plan.wanted);
  LoadModuleResult result;
  result.missing.assign(missing.begin(), missing.end());
  for (const std::string& name : source.weights) {
    if (!wanted.contains(name)) result.unexpected.push_back(name);
  }
  std::ranges::sort(result.unexpected);
  return result;
}

void require_fit(const LoadPlan& plan, const LoadModuleResult& left, const TensorSource& source,
                 const std::string& advice) {
  if (!plan.missing.empty()) {
    const LoadPlan::Item& item = plan.missing.front();
    const bool of_optimizer = !item.tensor.state.empty() && advice.empty();
    throw checkpoint::FileError(
        layer_of(item.tensor) + source.what + " has no " + shown(item) + advice +
        (of_optimizer
             ? "; was it saved with another optimizer, or with this weight frozen? Load it "
               "without the optimizer's states, or set these as they were"
             : ""));
  }
  if (!left.unexpected.empty()) {
    throw checkpoint::FileError(source.what + " holds \"" + left.unexpected.front() +
                                "\", which the module does not have" + advice);
  }
}

void read_tensors(const tensor::Context& context, const LoadPlan& plan,
                  const TensorSource& source) {
  for (const LoadPlan::Item& item : plan.found) {
    if (item.tensor.borrowed) continue;
    read_shard(
        context,
        [&](const checkpoint::Region& region, const tensor::Tensor& destination) {
          source.read(item.stored, region, destination);
        },
        item.tensor.data());
  }
}

}  // namespace penstock::engine
