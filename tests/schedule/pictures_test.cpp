// The pictures of a trace: well-formed, complete, and without anything from outside.
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedule/io/html.h"
#include "schedule/io/svg.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/trace_support.h"

namespace penstock::schedule {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// Whether tags are closed in the order in which they were opened, with no stray "<" or "&".
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&' && xml.find(';', at) > at + 6) return false;
    if (xml[at] != '<') continue;
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos || count(tag, "\"") % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.front() == '/') {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

TEST(Svg, DrawsABoxForEachPassWithItsMicroBatch) {
  const ScheduleArgs args{.ranks = 2, .micro_batches = 4, .chunks = 1};
  const std::string svg =
      to_svg(simulated("1f1b", one_f_one_b_rows(args), uniform_costs(2, 1)).trace);
  EXPECT_TRUE(well_formed(svg));
  for (int m = 0; m < 4; ++m) {
    EXPECT_EQ(count(svg, ">F" + std::to_string(m) + "<"), 2) << m;
    EXPECT_EQ(count(svg, ">B" + std::to_string(m) + "<"), 2) << m;
  }
  EXPECT_EQ(count(svg, "fill=\"#8fd0f5\""), 8 + 1);  // forwards and the legend's
  EXPECT_EQ(count(svg, "fill=\"#d55e00\""), 8 + 1);
  EXPECT_EQ(count(svg, ">makespan 15, bubble 25 % of the busy time<"), 1);
  EXPECT_EQ(count(svg, ">rank 0<"), 1);
  EXPECT_EQ(count(svg, ">20 %<"), 2);  // idle of each rank: 3 of 15
  EXPECT_EQ(count(svg, ">B backward<"), 1);
  EXPECT_EQ(count(svg, "weight part"), 0);  // the legend has what the picture has
}

TEST(Svg, TellsPassesApartWithoutColour) {
  const std::string svg = to_svg(two_ranks());
  EXPECT_TRUE(well_formed(svg));
  EXPECT_EQ(count(svg, "url(#hatched)"), 1 + 1);  // one input part, and the legend's
  EXPECT_EQ(count(svg, "url(#dotted)"), 1 + 1);
  for (const char* label : {">F0<", ">B0<", ">I0<", ">W0<", ">O<"}) {
    EXPECT_GE(count(svg, label), 1) << label;
  }
}

TEST(Svg, DrawsOverlappingPassesAboveOneAnother) {
  Trace trace{"overlap", {{"rank 0", 0, {}}}};
  trace.ranks[0].spans = {{of(Opcode::kForwardPass, 1, 1), StageId{1}, 0, 0.0, 1.0},
                          {of(Opcode::kBackwardPass, 0, 0), StageId{0}, 0, 0.0, 2.0},
                          {of(Opcode::kForwardPass, 2, 0), StageId{0}, 1, 2.0, 3.0}};
  const std::string svg = to_svg(trace);
  EXPECT_EQ(count(svg, "height=\"13\" fill"), 2);
  EXPECT_EQ(count(svg, "height=\"26\" fill=\"#8fd0f5\""), 1);
}

TEST(Svg, IsAsWideAsAskedFor) {
  EXPECT_EQ(count(to_svg(two_ranks(), {.width = 800.0}),
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\""),
            1);
  for (const double width : {-1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(error_of([&] { to_svg(two_ranks(), {.width = width}); }).find("width is"),
              std::string::npos);
  }
}

TEST(Svg, KeepsNamesFromBreakingOut) {
  Trace trace = two_ranks();
  trace.title = "<script>\"&\x01\xff</script>";
  trace.ranks[0].name = "a & b < c";
  const std::string svg = to_svg(trace);
  EXPECT_TRUE(well_formed(svg)) << svg.substr(0, 600);
  EXPECT_EQ(count(svg, "<script"), 0);
  EXPECT_EQ(count(svg, ">a &amp; b &lt; c<"), 1);
}

TEST(Svg, DrawsEmptyTraces) {
  EXPECT_TRUE(well_formed(to_svg(Trace{"none", {}})));
  EXPECT_TRUE(well_formed(to_svg(Trace{"idle", {{"rank 0", 0, {}}}})));
  EXPECT_EQ(count(to_svg(Trace{"idle", {{"rank 0", 0, {}}}}), "nan"), 0);
}

// The data of a page, as its script reads them.
nlohmann::json data_of(const std::string& html) {
  const std::string mark = "id=\"data\">";
  const std::size_t begin = html.find(mark) + mark.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(Html, HoldsEveryInstructionOfEveryTrace) {
  Trace second = two_ranks();
  second.title = "measured";
  const std::vector<Trace> traces = {two_ranks(), second};
  const nlohmann::json data = data_of(to_html(traces));
  ASSERT_EQ(data["traces"].size(), 2U);
  EXPECT_EQ(data["traces"][1]["title"], "measured");
  const nlohmann::json& trace = data["traces"][0];
  EXPECT_EQ(trace["makespan"], 8.0);
  EXPECT_EQ(trace["ranks"][0]["spans"].size(), 5U);
  // Opcode, chunk, micro batch, buffer, stage, step, start, end.
  const nlohmann::json& span = trace["ranks"][1]["spans"][2];
  EXPECT_EQ(data["opcodes"][span[0].get<std::size_t>()].dump(), R"(["BackwardInput","I"])");
  EXPECT_EQ(span.dump().substr(span.dump().find(',')), ",0,0,0,1,1,3.5,4.5]");
  const nlohmann::json& recv = trace["ranks"][1]["spans"][0];
  EXPECT_EQ(data["opcodes"][recv[0].get<std::size_t>()].dump(), R"(["RecvActivation",""])");
  EXPECT_EQ(trace["transfers"].size(), 2U);
  EXPECT_EQ(trace["shades"]["F"].size(), 1U);
}

TEST(Html, NeedsNothingFromOutside) {
  const std::vector<Trace> traces = {two_ranks()};
  const std::string html = to_html(traces);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(count(html, outside), 0) << outside;
  }
}

TEST(Html, KeepsNamesFromBreakingOut) {
  Trace trace = two_ranks();
  trace.title = "</script><script>alert(1)</script><!--";
  const std::vector<Trace> traces = {trace};
  const std::string html = to_html(traces);
  EXPECT_EQ(count(html, "alert(1)</script>"), 0);
  EXPECT_EQ(count(html, "<script"), 2);
  EXPECT_EQ(count(html, "<!--"), 0);
  EXPECT_EQ(data_of(html)["traces"][0]["title"], trace.title);
}

}  // namespace
}  // namespace penstock::schedule
