// Monitors write series of numbers for people to look at: a metric over the samples trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace penstock::engine {

struct Metric {
  std::string tag;  // "Train/Samples/train_loss"
  double value = 0.0;
};

// Belongs to one thread. A monitor opens its files at the first write, so that it knows by then
// where a resumed run goes on.
class Monitor {
 public:
  virtual ~Monitor() = default;
  // The section of the configuration that it comes from.
  virtual std::string name() const = 0;
  // The run is now at this number of samples: what an earlier run wrote of later ones counts no
  // more. Called before the first write.
  virtual void begin_at(std::int64_t samples) = 0;
  // Writes one point of each metric. Throws tensor::Error, naming the file, when it cannot; the
  // points that were not written are lost, and a later call tries anew.
  virtual void write(std::span<const Metric> metrics, std::int64_t samples) = 0;
};

}  // namespace penstock::engine
