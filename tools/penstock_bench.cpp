// penstock-bench: measures what the design promises, as ratios within one run.
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "comm/device/devices.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/gpu.h"

namespace {

namespace po = boost::program_options;
using namespace penstock::tools;

constexpr const char* kIntroduction =
    R"(Measures Penstock on this machine; keep it idle meanwhile.

  penstock-bench executor              time that the executor adds to an instruction
  penstock-bench mlp                   a step of a tiny model, on 1 and 2 ranks
  penstock-bench handover              handing an activation to the next stage, between threads
  mpirun -n 2 penstock-bench handover  the same between processes, beside plain MPI
  penstock-bench schedule              making, verifying and simulating large pipes
  penstock-bench prediction            makespan and idle times beside what was predicted
  penstock-bench checkpoint            saving, beside plain writing to the same disk; and how long
                                       an asynchronous save blocks, beside one copy of the state
  penstock-bench share                 how much of a GPT's step is matrix products
  penstock-bench gpu                   one NVIDIA device: its kernels beside a copy, its products,
                                       and GPT-2's training in bf16
)";

int run(int argc, char** argv) {
  std::string benchmark, schedule, folder = ".";
  ShareOptions share;
  GpuOptions gpu;
  po::options_description visible("Options");
  auto add = visible.add_options();
  add("help,h", "print this and exit");
  add("widths", po::value(&share.widths)->multitoken(), "share: widths (128 256 512 768)");
  int micro_batches = 0;
  add("micro-batches", po::value(&micro_batches), "share, gpu: micro batches per step (8; gpu: 4)");
  std::int64_t mebibytes = 1024;
  add("mib", po::value(&mebibytes)->default_value(mebibytes),
      "checkpoint: size of each rank's state");
  add("folder", po::value(&folder)->default_value(folder), "checkpoint: where to write");
  add("schedule", po::value(&schedule), "prediction: only this schedule");
  add("repeats", po::value(&share.repeats)->default_value(share.repeats),
      "share, gpu: steps to take the median of");
  add("parts", po::value(&gpu.parts)->multitoken(), "gpu: only these of kernels, 124M and 1.5B");
  add("graphs", po::bool_switch(&gpu.graphs), "gpu: training replays its passes as CUDA graphs");
  add("rows", po::value(&gpu.rows), "gpu: sequences of a micro batch (124M: 32, 1.5B: 8)");
  po::options_description all;
  all.add(visible).add_options()("benchmark", po::value(&benchmark));
  po::positional_options_description positional;
  positional.add("benchmark", 1);
  po::variables_map values;
  po::store(
      po::command_line_parser(argc, argv)
          .options(all)
          .positional(positional)
          .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
          .run(),
      values);
  po::notify(values);
  if (values.contains("help") || benchmark.empty()) {
    std::cout << kIntroduction << '\n' << visible;
    return values.contains("help") ? 0 : 2;
  }
  if (values.contains("micro-batches")) share.micro_batches = gpu.micro_batches = micro_batches;
  gpu.repeats = share.repeats;
  if (share.repeats < 1 || share.micro_batches < 1) {
    throw po::error("--repeats and --micro-batches must be at least 1");
  }
  if (values.contains("rows") && gpu.rows < 1) throw po::error("--rows must be at least 1");
  if (mebibytes < 1 || mebibytes > 65536) throw po::error("--mib must be from 1 to 65536");
  if (benchmark == "executor") {
    bench_executor();
  } else if (benchmark == "mlp") {
    bench_mlp();
  } else if (benchmark == "handover") {
    bench_handover();
  } else if (benchmark == "schedule") {
    bench_schedule();
  } else if (benchmark == "prediction") {
    bench_prediction(schedule);
  } else if (benchmark == "checkpoint") {
    bench_checkpoint(folder, mebibytes);
    bench_async_save(folder, mebibytes);
  } else if (benchmark == "share") {
    bench_share(share);
  } else if (benchmark == "gpu") {
    bench_gpu(gpu);
  } else {
    std::cerr
        << "penstock-bench: unknown benchmark '" << benchmark
        << "'; expected executor, mlp, handover, schedule, prediction, checkpoint, share or gpu\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  penstock::comm::prepare_devices();
  try {
    return run(argc, argv);
  } catch (const po::error& error) {
    std::cerr << "penstock-bench: " << error.what() << "; see penstock-bench --help\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "penstock-bench: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "penstock-bench: " << error.what() << '\n';
    return 1;
  }
}
