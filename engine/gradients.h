// Gradient reduction, tied gradients and the global norm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/grid.h"
#include "comm/world.h"
#include "engine/flat_reducer.h"
#include "model/module.h"
#include "model/stage.h"
#include "schedule/ids.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

// Sums gradients over replicas, and of tied weights over their uses, so that the result has the
// same bits for every cut of the model: uses are added in global layer order within a replica, then
// replicas in rank order. The loss gradient is scaled at its source, so sums are all there is.
class GradientReducer {
 public:
  // Collective over the world: creates the communicators of the ties. `bounds` are the cuts into
  // the stages of `map`. The module is only read here; stages and `comms` are borrowed.
  GradientReducer(const Config& config, const model::Module& module,
                  std::span<const std::int64_t> bounds, const schedule::StageMap& map,
                  std::span<const std::unique_ptr<model::Stage>> stages, const comm::Grid& grid,
                  comm::GridComms& comms);

  // Around each pass that adds weight gradients of a chunk.
  void begin_weights(const tensor::Context& context, schedule::ChunkId chunk);
  void end_weights(tensor::Context& context, schedule::ChunkId chunk);
  // ReduceGrads: sums the gradients that are partial over the model group, and starts the reduction
  // of the chunk's untied gradients over replicas; with ZeRO stage 2 waits for it, and frees them.
  void start(tensor::Context& context, schedule::ChunkId chunk);
  // ReduceTiedGrads: starts the exchange of tied gradients.
  void start_tied(tensor::Context& context);
  // Waits for both. Afterwards flats() has the full gradients.
  void finish(tensor::Context& context);
  // L2 norm over all parameters of the model, each counted once: per-layer sums of squares in
  // double, added in global layer order; the same bits on every rank. Waits for a device, once.
  // Collective over the pipe and the model group.
  double global_norm(tensor::Context& context);
  // Of the last global_norm(): the first layer of the model with a gradient that is not finite; -1:
  // none.
  std::int64_t first_bad_layer() const;
  FlatReducer& flats() { return flats_; }
  // Forgets all gradients.
  void clear();

  // Bytes of gradients that were given to sums over replicas and exchanges with other ranks.
  std::int64_t reduced_bytes() const { return exchanged_bytes_ + flats_.reduced_bytes(); }

  // Whether the model has tied layers, so that its stream must reduce their gradients.
  static bool has_ties(const model::Module& module);
  // Collective over the ties' members.
  void close();

 private:
  // One tied weight of which this rank has a use.
  struct TiedWeight {
    std::string name;
    // The accumulators of this rank's uses, over all its stages, in global layer order. The first
    // one is that of the stage that holds the weight.
    std::vector<tensor::GradSlot*> slots;
    comm::Communicator* group = nullptr;  // of the ranks with uses; null when it is only this one
    std::size_t uses_per_rank = 0;        // largest number of uses on a member
    // In global layer order: where the use's gradient lies in `gathered`, in units of the weight.
    std::vector<std::size_t> order;
    tensor::Tensor sent, gathered;
    comm::Work exchange;
  };

  // `ranks`: of the pipe, by use of the key, in global layer order.
  void add_tie(const std::string& key, std::span<const int> ranks);
  std::vector<TiedWeight> weights_of(const std::string& key) const;
  void start_exchange(tensor::Context& context, TiedWeight& weight);
  void sum_uses(tensor::Context& context, TiedWeight& weight);
  // Whether this rank's part of the parameter counts in the norm of the model.
  bool counts(const model::StageParameter& parameter) const;

  model::Stage& stage(schedule::ChunkId chunk) {
    return *stages_[static_cast<std::size_t>(chunk.value)];
  }
  void take_unreduced(const tensor::Context& context);
  void reduce_untied(tensor::Context& context, model::Stage& stage);
  // What a parameter of this rank adds to the norm.
  struct NormPart {
    tensor::Tensor gradients;
    std::size_t layer = 0;
    bool counts = true;  // else it is only looked at: another rank of the model group counts it
  };
  std::vector<NormPart> norm_parts() const;

  std::span<const std::unique_ptr<model::Stage>> stages_;
  comm::Communicator& pipe_;
  comm::Communicator& data_;
  comm::Communicator& model_;
  std::map<std::string, std::unique_ptr<comm::Communicator>> groups_;  // by tie key
  std::vector<TiedWeight> ties_;
  FlatReducer flats_;
  bool reduce_each_micro_batch_;
  std::vector<double> layer_sums_;
  std::int64_t exchanged_bytes_ = 0;  // of tied weights
};

}  // namespace penstock::engine
