#include "schedule/verify.h"

#include <iostream>

#include "tools/schedule/pipes.h"

namespace penstock::tools {

int verify_schedule(const Words& words) {
  CommandLine line("verify NAME [options]",
                   std::string("Proves that the streams of all ranks finish, compute everything "
                               "once, and never overwrite what is needed.\n"
                               "Ends with status 1 if they do not.\n") +
                       kNameHelp);
  const PipeOptions options(line);
  std::string name;
  line.named.add_options()("name", po::value(&name));
  if (!line.parse(words, "name")) return kGood;
  const Pipe pipe = pipe_named(name, options);
  const schedule::Report report = schedule::verify(pipe.streams, pipe.trains);
  std::cout << pipe.title << (report.ok() ? ": " : "\n") << report.to_text();
  return report.ok() ? kGood : kBadSchedule;
}

}  // namespace penstock::tools
