#include <string>
#include <vector>

#include "schedule/io/chrome_trace.h"
#include "schedule/io/html.h"
#include "schedule/io/svg.h"
#include "tools/schedule/cost_options.h"
#include "tools/schedule/pipes.h"

namespace penstock::tools {
namespace {

using schedule::Trace;

struct DrawOptions {
  std::vector<std::string> names;
  std::vector<std::string> traces;
  int replica = 0;
  double width = 0.0;
  std::string out;
};

void describe(CommandLine& line, DrawOptions& options) {
  auto add = line.options.add_options();
  line.named.add_options()("name", po::value(&options.names));
  add("measured", po::value(&options.traces)->value_name("FILE"),
      "a Chrome trace to draw too, such as the trace.json of penstock-train; any number");
  add("replica", po::value(&options.replica)->value_name("N")->default_value(0),
      "which replica of a measured trace");
  add("width", po::value(&options.width)->value_name("PIXELS")->default_value(0.0),
      "of an SVG (default: as wide as the numbers need, up to 1600)");
  add("out,o", po::value(&options.out)->value_name("FILE")->required(),
      "where to: .svg for one picture, .html for a page with zoom, details under the pointer and "
      "any number of pictures");
}

std::vector<Trace> all_traces(const DrawOptions& options, const PipeOptions& pipes,
                              const CostOptions& costs) {
  std::vector<Trace> traces;
  for (const std::string& name : options.names) {
    const Pipe pipe = pipe_named(name, pipes);
    require_safe(pipe);
    const auto timeline =
        schedule::simulate(pipe.streams, costs.costs_for(pipe.first().stage_map()));
    traces.push_back(schedule::make_trace(pipe.title, timeline, pipe.streams));
  }
  for (const std::string& file : options.traces) {
    const Trace measured = schedule::trace_from_chrome(read_file(file), file);
    traces.push_back(schedule::only_replica(measured, options.replica));
  }
  return traces;
}

}  // namespace

int draw(const Words& words) {
  CommandLine line("draw [NAME...] [options] --out FILE",
                   std::string("Pictures of schedules, and of what was measured.\n") + kNameHelp);
  const PipeOptions pipes(line);
  const CostOptions costs(line);
  DrawOptions options;
  describe(line, options);
  if (!line.parse(words, "name", -1)) return kGood;
  const std::size_t pictures = options.names.size() + options.traces.size();
  if (pictures == 0) {
    throw std::invalid_argument("nothing to draw; give the NAME of a schedule, or --measured");
  }
  if (options.out.ends_with(".html")) {
    write_output(options.out, schedule::to_html(all_traces(options, pipes, costs)));
  } else if (!options.out.ends_with(".svg")) {
    throw std::invalid_argument("--out is \"" + options.out +
                                "\"; expected a file that ends in .svg or .html");
  } else if (pictures > 1) {
    throw std::invalid_argument("an .svg holds one picture and there are " +
                                std::to_string(pictures) + "; write an .html, or one each");
  } else {
    write_output(options.out, schedule::to_svg(all_traces(options, pipes, costs).front(),
                                               {.width = options.width}));
  }
  return kGood;
}

}  // namespace penstock::tools
