// Samples per second of training, over the time spent in train_batch alone.
#pragma once

#include <cstdint>

namespace penstock::engine {

class Throughput {
 public:
  // The first steps pay for memory that later ones find ready; they are left out.
  static constexpr std::int64_t kStepsLeftOut = 2;

  void add_step(std::int64_t samples, double seconds) {
    if (++steps_ <= kStepsLeftOut) return;
    total_.add(samples, seconds);
    current_.add(samples, seconds);
  }
  // Begins the interval of current() anew.
  void mark() { current_ = {}; }

  // Samples per second since mark(), and over the whole run; 0 before there is a step to count.
  double current() const { return current_.rate(); }
  double running() const { return total_.rate(); }

 private:
  struct Sum {
    void add(std::int64_t more_samples, double more_seconds) {
      samples += static_cast<double>(more_samples);
      seconds += more_seconds;
    }
    double rate() const { return seconds > 0.0 ? samples / seconds : 0.0; }

    double samples = 0.0;
    double seconds = 0.0;
  };

  std::int64_t steps_ = 0;
  Sum total_;
  Sum current_;
};

}  // namespace penstock::engine
