#include "schedule/verify.h"

#include <algorithm>

#include "schedule/grid.h"
#include "schedule/machine.h"
#include "schedule/stream_check.h"

namespace penstock::schedule {
namespace {

constexpr std::int64_t kStepsAround = 4;  // of a finding, to either side

std::string describe(const ChannelEnd& end) {
  return "micro batch " + std::to_string(end.micro_batch.value) + " over the edge from stage " +
         std::to_string(end.edge.value) + " to " + std::to_string(end.edge.value + 1);
}

// Each send is for the receive of the same number on its channel.
void check_channel(const PipeStreams& pipe, const Channel& channel,
                   std::vector<Finding>& findings) {
  const auto from = static_cast<std::size_t>(channel.from.value);
  const auto to = static_cast<std::size_t>(channel.to.value);
  const std::size_t both = std::min(channel.sends.size(), channel.receives.size());
  for (std::size_t i = 0; i < both; ++i) {
    const ChannelEnd &sent = channel.sends[i], &received = channel.receives[i];
    if (sent.edge == received.edge && sent.micro_batch == received.micro_batch) continue;
    findings.push_back(finding_at(pipe, to, received.position,
                                  "gets " + describe(sent) + ", sent by " +
                                      place(pipe, from, sent.position) +
                                      "; on a channel, receives come in the order of the sends"));
    return;
  }
  if (channel.sends.size() > both) {
    findings.push_back(finding_at(pipe, from, channel.sends[both].position,
                                  "rank " + std::to_string(to) + " never receives it"));
  } else if (channel.receives.size() > both) {
    findings.push_back(finding_at(pipe, to, channel.receives[both].position,
                                  "rank " + std::to_string(from) + " never sends it"));
  }
}

// Keeps the first finding of each rank, in rank order.
void keep_first(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) {
    return std::tie(a.rank, a.step, a.index) < std::tie(b.rank, b.step, b.index);
  });
  const auto rest = std::ranges::unique(findings, {}, &Finding::rank);
  findings.erase(rest.begin(), rest.end());
}

std::vector<Finding> check_all(const PipeStreams& pipe, bool trains) {
  std::vector<Finding> findings;
  for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
    if (auto finding = check_stream(pipe, rank, trains)) findings.push_back(*finding);
  }
  if (!findings.empty()) return findings;
  for (const Channel& channel : pipe.channels()) check_channel(pipe, channel, findings);
  keep_first(findings);
  if (!findings.empty()) return findings;
  Machine machine(pipe, Machine::Sends::kNeverWait, nullptr);
  if (machine.run()) return findings;
  for (std::size_t rank = 0; rank < pipe.num_ranks(); ++rank) {
    if (machine.ended(rank)) continue;
    findings.push_back(finding_at(pipe, rank, machine.position(rank), machine.reason(rank)));
  }
  return findings;
}

}  // namespace

std::string Report::to_text() const {
  if (ok()) {
    return std::string("ok") +
           (rendezvous_safe ? "; also if every send waits for its receive\n" : "\n");
  }
  std::string text;
  for (const Finding& finding : findings) text += finding.message + "\n";
  return text + grid;
}

Report verify(std::span<const std::unique_ptr<Schedule>> schedules, bool trains) {
  const PipeStreams pipe(schedules);
  Report report;
  report.findings = check_all(pipe, trains);
  if (report.ok()) {
    report.rendezvous_safe = Machine(pipe, Machine::Sends::kWaitForReceive, nullptr).run();
  } else {
    const std::int64_t step = report.findings.front().step;
    report.grid = to_grid(schedules, step - kStepsAround, step + kStepsAround + 1);
  }
  return report;
}

void require_verified(std::span<const std::unique_ptr<Schedule>> schedules, bool trains) {
  const Report report = verify(schedules, trains);
  if (report.ok()) return;
  throw ScheduleError("[verify] the schedule \"" + std::string(schedules.front()->name()) +
                      "\" cannot run:\n" + report.to_text());
}

}  // namespace penstock::schedule
